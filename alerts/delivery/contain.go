package delivery

import (
	"context"
	"errors"
	"fmt"
	"net"
	"runtime/debug"
	"sync"
	"sync/atomic"

	"github.com/prometheus/alertmanager/alert"
	"github.com/prometheus/alertmanager/notify"
)

// contained keeps a receiver that panics from ending the process. It counts as a failure that may be tried again. One
// that hangs is ended by its context, as every receiver of Alertmanager is.
type contained struct {
	integration notify.Integration
	underWay    *atomic.Int64
}

func contain(i notify.Integration, receiver string, underWay *atomic.Int64) notify.Integration {
	return notify.NewIntegration(&contained{i, underWay}, &i, i.Name(), i.Index(), receiver)
}

func (c *contained) Notify(ctx context.Context, alerts ...*alert.Alert) (verdict notify.NotifyVerdict) {
	c.underWay.Add(1)
	defer func() {
		c.underWay.Add(-1)
		if p := recover(); p != nil {
			verdict = notify.Retry(0, fmt.Errorf("%s panicked: %v\n%s", c.integration.String(), p, debug.Stack()), notify.DefaultReason)
		}
	}()
	return c.integration.Notify(ctx, alerts...)
}

// connections are those that the receivers of one configuration opened. Alertmanager leaves idle ones to time out after
// five minutes, which would outlive a reload and a shutdown.
type connections struct {
	mu     sync.Mutex
	open   map[net.Conn]struct{}
	closed bool
}

type connection struct {
	net.Conn
	of *connections
}

func (c *connections) dial(ctx context.Context, network, address string) (net.Conn, error) {
	var dialer net.Dialer
	conn, err := dialer.DialContext(ctx, network, address)
	if err != nil {
		return nil, err
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.closed {
		return nil, errors.Join(errors.New("the receiver is shut down"), conn.Close())
	}
	c.open[conn] = struct{}{}
	return connection{conn, c}, nil
}

func (c connection) Close() error {
	c.of.mu.Lock()
	delete(c.of.open, c.Conn)
	c.of.mu.Unlock()
	return c.Conn.Close()
}

func (c *connections) close() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.closed = true
	for conn := range c.open {
		_ = conn.Close()
	}
	clear(c.open)
}

func newConnections() *connections { return &connections{open: map[net.Conn]struct{}{}} }
