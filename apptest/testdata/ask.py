# Asks a store of ClickHouse, without a server, what standard input has as a list of JSON:
# one answer a line, after the version.
import json
import sys

from chdb._chdb import connect

store = connect("file:" + sys.argv[1])
store.query("USE retryledger")
for question in ["SELECT version()", *json.load(sys.stdin)]:
    print(str(store.query(question, "TabSeparated")).strip())
