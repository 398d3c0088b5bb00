//go:build linux

package apptest

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"sync"
	"sync/atomic"
)

// proxy stands between a sender and a collector's receiver, and cuts a connection after
// the collector has answered, so that the answer never arrives.
type proxy struct {
	listener net.Listener
	target   string
	cutNext  atomic.Bool
	cuts     atomic.Int64
	wg       sync.WaitGroup

	mu    sync.Mutex
	conns map[net.Conn]struct{}
}

func newProxy(ctx context.Context, target string) (*proxy, error) {
	l, err := (&net.ListenConfig{}).Listen(ctx, "tcp", "127.0.0.1:0")
	if err != nil {
		return nil, fmt.Errorf("listen for senders: %w", err)
	}
	p := &proxy{listener: l, target: target, conns: make(map[net.Conn]struct{})}
	p.wg.Go(func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			p.wg.Go(func() { p.serve(ctx, c) })
		}
	})
	return p, nil
}

func (p *proxy) address() string { return p.listener.Addr().String() }

func (p *proxy) hold(c net.Conn) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.conns[c] = struct{}{}
}

func (p *proxy) drop(c net.Conn) {
	_ = c.Close()
	p.mu.Lock()
	defer p.mu.Unlock()
	delete(p.conns, c)
}

func (p *proxy) serve(ctx context.Context, sender net.Conn) {
	p.hold(sender)
	defer p.drop(sender)
	collector, err := (&net.Dialer{}).DialContext(ctx, "tcp", p.target)
	if err != nil {
		return // it is down: the sender is told by the end of its connection
	}
	p.hold(collector)
	defer p.drop(collector)
	p.wg.Go(func() {
		_, _ = io.Copy(collector, sender)
		_ = collector.Close()
	})
	buffer := make([]byte, 32<<10)
	for {
		n, err := collector.Read(buffer)
		if n > 0 && p.cutNext.CompareAndSwap(true, false) {
			p.cuts.Add(1)
			return // what it answered is lost on the way
		}
		if n > 0 {
			if _, err := sender.Write(buffer[:n]); err != nil {
				return
			}
		}
		if err != nil {
			return
		}
	}
}

func (p *proxy) Close() error {
	err := p.listener.Close()
	p.mu.Lock()
	for c := range p.conns {
		_ = c.Close()
	}
	p.mu.Unlock()
	p.wg.Wait()
	if err != nil && !errors.Is(err, net.ErrClosed) {
		return fmt.Errorf("close a proxy: %w", err)
	}
	return nil
}
