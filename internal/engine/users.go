package engine

import (
	"bytes"
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"encoding/xml"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"maps"
)

// password returns the password of User in dir and generates one at first.
func password(dir string) (string, error) {
	path := filepath.Join(dir, PasswordFile)
	b, err := os.ReadFile(path)
	if err == nil {
		if p := strings.TrimSpace(string(b)); p != "" {
			return p, os.Chmod(path, 0o600)
		}
	} else if !errors.Is(err, fs.ErrNotExist) {
		return "", fmt.Errorf("engine: read the password of user %s: %w", User, err)
	}
	p := rand.Text()
	if err := writeFile(path, []byte(p+"\n")); err != nil {
		return "", fmt.Errorf("engine: keep the password of user %s: %w", User, err)
	}
	return p, nil
}

// writeFile replaces path by rename, readable for its owner only.
func writeFile(path string, data []byte) error {
	f, err := os.CreateTemp(filepath.Dir(path), "."+filepath.Base(path)+"-*") // mode 0600
	if err != nil {
		return err
	}
	defer os.Remove(f.Name())
	if _, err = f.Write(data); err == nil {
		err = f.Sync()
	}
	if cerr := f.Close(); err == nil {
		err = cerr
	}
	if err != nil {
		return err
	}
	return os.Rename(f.Name(), path)
}

// Limits of the read-only user: of one query, and of all its queries at once.
const (
	readerSeconds = 60
	readerQueries = 32
)

// noFile is a function of SQL that stands before the engine's own of its name. file(path)
// as an expression asks for no grant, and the library, which thinks itself a command line,
// lets it read every file of its user: the password of User and keys among them. The
// statement CREATE FUNCTION refuses a name that is taken; a file of the folder that it
// writes to does not, and is looked at first wherever an expression may stand.
const noFile = "CREATE FUNCTION file AS path -> throwIf(true, 'file() is shut: no query reads files of this machine')\n"

// usersConfig is the users file of ClickHouse.
//
// The library logs its own session in as a passwordless "default", which so
// cannot be done without, and a passwordless user would let every user of the
// machine read and write files through file(). It is shut twice: it may hold
// one session, which the engine's own holds for as long as the engine lives,
// so every further log-in is refused; and it has no grants but for what that
// session does.
func usersConfig(o Options, pw string) []byte {
	host, _, _ := net.SplitHostPort(o.Listen)
	networks := "<ip>::/0</ip>"
	if isLoopback(host) {
		networks = "<ip>127.0.0.0/8</ip><ip>::1</ip>"
	}
	var b bytes.Buffer
	b.WriteString(`<clickhouse>
<profiles>
<default>
<!-- What the library sets for its own command line and a server does not. -->
<implicit_select>0</implicit_select>
<allow_introspection_functions>0</allow_introspection_functions>
<poll_interval>1</poll_interval>
</default>
<boot><max_sessions_for_user>1</max_sessions_for_user></boot>
`)
	// What a reader asks must leave room for what is written. It may set lower limits
	// for its queries, and no higher ones.
	b.WriteString("<reader>\n<readonly>2</readonly>\n")
	var constraints strings.Builder
	for _, limit := range []struct {
		name    string
		value   int64
		highest int64
	}{
		{"max_execution_time", readerSeconds, 2 * readerSeconds}, // seconds; clients add some to their own timeout
		{"max_memory_usage", o.MemoryLimit / 4, o.MemoryLimit / 4},
		{"max_memory_usage_for_user", o.MemoryLimit / 2, o.MemoryLimit / 2},
		{"max_concurrent_queries_for_user", readerQueries, readerQueries},
	} {
		fmt.Fprintf(&b, "<%s>%d</%s>\n", limit.name, limit.value, limit.name)
		// Zero would mean no limit.
		fmt.Fprintf(&constraints, "<%s><min>1</min><max>%d</max></%s>\n", limit.name, limit.highest, limit.name)
	}
	// Formats that read a file of the machine, wherever it lies.
	for _, setting := range []string{"format_schema", "format_schema_source", "format_template_row", "format_template_resultset"} {
		fmt.Fprintf(&constraints, "<%s><const/></%s>\n", setting, setting)
	}
	b.WriteString("<constraints>\n" + constraints.String() + "</constraints>\n</reader>\n")
	b.WriteString(`</profiles>
<quotas><default/></quotas>
<users>
<default>
<password/><networks><ip>127.0.0.1</ip></networks><profile>boot</profile><quota>default</quota>
<grants><query>GRANT SYSTEM LISTEN ON *.*</query></grants>
</default>
`)
	user := func(name, pw, profile string, grants ...string) {
		sum := sha256.Sum256([]byte(pw))
		fmt.Fprintf(&b, "<%s>\n<password_sha256_hex>%s</password_sha256_hex><networks>%s</networks><profile>%s</profile><quota>default</quota>\n<grants>",
			name, hex.EncodeToString(sum[:]), networks, profile)
		for _, g := range grants {
			fmt.Fprintf(&b, "<query>%s</query>", g)
		}
		fmt.Fprintf(&b, "</grants>\n</%s>\n", name)
	}
	// Whoever gets hold of the password still reaches no file of this machine.
	user(User, pw, "default", "GRANT ALL ON *.* WITH GRANT OPTION", "REVOKE FILE ON *.*", "REVOKE TABLE ENGINE ON File", "REVOKE CREATE FUNCTION, DROP FUNCTION ON *.*")
	if r := o.ReadOnly; r != nil {
		grants := []string{"GRANT SELECT, SHOW, dictGet ON *.*"}
		if len(r.Databases) > 0 {
			grants = nil
			for _, db := range r.Databases {
				grants = append(grants, "GRANT SELECT, SHOW, dictGet ON "+db+".*")
			}
		}
		user(r.Name, r.Password, "reader", grants...)
	}
	b.WriteString("</users>\n</clickhouse>\n")
	return b.Bytes()
}

// serverConfig is the configuration file of ClickHouse. It holds no system
// log tables: the library creates query_log and its like only where they are
// configured, so an idle engine writes nothing.
func serverConfig(o Options, d layout) []byte {
	var b bytes.Buffer
	el := func(name string, v any) {
		fmt.Fprintf(&b, "<%s>", name)
		_ = xml.EscapeText(&b, fmt.Append(nil, v))
		fmt.Fprintf(&b, "</%s>\n", name)
	}
	b.WriteString("<clickhouse>\n<logger>\n")
	el("log", d.engineLog)
	el("errorlog", d.engineErrLog)
	el("size", o.LogFileBytes)
	el("count", o.LogFiles)
	el("console", "0") // else it logs to the host's terminal as well
	b.WriteString("</logger>\n")
	el("users_config", d.usersXML)
	el("timezone", "UTC")
	// Without, whoever may create a table may create one on any file of the
	// machine: the engine File needs no grant of FILE.
	b.WriteString("<access_control_improvements><table_engines_require_grant>true</table_engines_require_grant></access_control_improvements>\n")
	// BACKUP and RESTORE reach this folder and no other.
	fmt.Fprintf(&b, "<backups>")
	el("allowed_path", d.backups)
	el("allow_concurrent_backups", "0")
	el("allow_concurrent_restores", "0")
	b.WriteString("</backups>\n")
	el("max_server_memory_usage", o.MemoryLimit)
	el("mark_cache_size", o.MemoryLimit/8)
	el("index_mark_cache_size", o.MemoryLimit/32)
	el("background_pool_size", mergeThreads())
	// With the library's default of 2 the merge selector of every table is
	// paused again and again ("Temporarily pause scheduling of tasks").
	el("background_schedule_pool_size", 16)
	el("asynchronous_metrics_update_period_s", 10)
	// An idle client is told within poll_interval that the engine ends.
	el("shutdown_wait_unfinished", 2)
	if len(o.Clusters) > 0 {
		b.WriteString("<remote_servers>\n")
		names := slices.Sorted(maps.Keys(o.Clusters))
		for _, name := range names {
			fmt.Fprintf(&b, "<%s>\n", name)
			for _, s := range o.Clusters[name] {
				host, port, _ := net.SplitHostPort(s.Addr)
				b.WriteString("<shard><replica>\n")
				el("host", host)
				el("port", port)
				el("user", s.User)
				el("password", s.Password)
				b.WriteString("</replica></shard>\n")
			}
			fmt.Fprintf(&b, "</%s>\n", name)
		}
		b.WriteString("</remote_servers>\n")
	}
	b.WriteString("</clickhouse>\n")
	return b.Bytes()
}

// layout names the files of a data folder.
type layout struct {
	dir, store, backups, lock                     string
	configXML, usersXML, hostJSON, noFile         string
	logDir, engineLog, engineErrLog, hostLog, pwd string
}

func layoutOf(dir string) layout {
	j := func(e ...string) string { return filepath.Join(append([]string{dir}, e...)...) }
	return layout{
		dir: dir, store: j("store"), backups: j(BackupFolder), lock: j("lock"), pwd: j(PasswordFile),
		configXML: j("config.xml"), usersXML: j("users.xml"), hostJSON: j("host.json"),
		noFile: j("store", "user_defined", "function_file.sql"),
		logDir: j("log"), engineLog: j("log", "engine.log"), engineErrLog: j("log", "engine.err.log"), hostLog: j("log", "host.log"),
	}
}
