package delivery

import (
	"context"
	"fmt"
	"log/slog"
	"net"
	"reflect"
	"time"
	"unsafe"

	"github.com/prometheus/alertmanager/cluster"
	"github.com/prometheus/client_golang/prometheus"
)

// The first notification after a start waits until the peers were asked for what they know, at most settleTimeout, and
// then until the number of peers held still for four polls.
const (
	settleTimeout     = 3 * time.Second
	settlePoll        = 100 * time.Millisecond
	gossipInterval    = 100 * time.Millisecond
	gossipTCPTimeout  = 5 * time.Second
	reconnectInterval = 2 * time.Second
	forgetPeerAfter   = 6 * time.Hour
	leaveTimeout      = 2 * time.Second
)

// peers is this collector's place in a cluster.
type peers struct {
	*cluster.Peer
	cancel context.CancelFunc
	done   chan struct{}
}

func newPeers(c *ClusterConfig, logger *slog.Logger, reg prometheus.Registerer) (*peers, error) {
	tls, err := cluster.GetTLSTransportConfig(c.TLSConfigFile)
	if err != nil {
		return nil, fmt.Errorf("cluster: tls_config_file %s: %w", c.TLSConfigFile, err)
	}
	if err := free(c.BindAddress); err != nil {
		return nil, fmt.Errorf("cluster: listen for peers on %s: %w", c.BindAddress, err)
	}
	p, err := cluster.Create(logger.With("component", "cluster"), reg, c.BindAddress, c.AdvertiseAddress, c.Peers, true,
		cluster.DefaultPushPullInterval, gossipInterval, gossipTCPTimeout, gossipTCPTimeout,
		cluster.DefaultProbeTimeout, cluster.DefaultProbeInterval, tls, false, "", "")
	if err != nil {
		return nil, fmt.Errorf("cluster: listen for peers on %s: %w", c.BindAddress, err)
	}
	return &peers{Peer: p, done: make(chan struct{})}, nil
}

// free says why an address cannot be listened on: cluster.Create leaves a goroutine behind when it finds out itself.
func free(address string) error {
	l, err := net.Listen("tcp", address) //nolint:noctx // it is closed at once
	if err != nil {
		return err
	}
	return l.Close()
}

// join asks the peers for what they know, and settles. It returns at once.
func (p *peers) join(logger *slog.Logger) {
	ctx, cancel := context.WithCancel(context.Background())
	p.cancel = cancel
	joined := make(chan struct{})
	go func() {
		defer close(joined)
		if err := p.Join(reconnectInterval, forgetPeerAfter); err != nil {
			logger.Warn("no peer answered yet; they are tried again", "err", err)
		}
	}()
	go func() {
		defer close(p.done)
		ctx, cancel := context.WithTimeout(ctx, settleTimeout)
		defer cancel()
		select {
		case <-joined:
		case <-ctx.Done():
		}
		p.Settle(ctx, settlePoll)
		<-joined
	}()
}

// leave tells the peers, and frees the address.
func (p *peers) leave() error {
	if p.cancel != nil {
		p.cancel()
	}
	err := p.Leave(leaveTimeout)
	if err := shutdown(p.Peer); err != nil {
		return err
	}
	if p.cancel != nil {
		<-p.done
	}
	return err
}

// shutdown closes the sockets and ends the goroutines of a peer. Peer.Leave does not, and what could is a field that is
// not exported; without it a collector that reads its configuration again finds its own address in use.
func shutdown(p *cluster.Peer) error {
	field := reflect.ValueOf(p).Elem().FieldByName("mlist")
	if !field.IsValid() {
		return fmt.Errorf("cluster: this version of Alertmanager has no known way to close a peer")
	}
	list, ok := reflect.NewAt(field.Type(), unsafe.Pointer(field.UnsafeAddr())).Elem().Interface().(interface{ Shutdown() error })
	if !ok {
		return fmt.Errorf("cluster: this version of Alertmanager has no known way to close a peer")
	}
	return list.Shutdown()
}
