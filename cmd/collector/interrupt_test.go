package main

import (
	"bytes"
	"context"
	"os"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
)

func TestSignals(t *testing.T) {
	const never = -1
	for _, c := range []struct {
		name string
		// after which times, from the first signal on, further ones come
		further []time.Duration
		ends    time.Duration // when the collector has stopped
		exits   int           // the code the process is ended with, never if it ends by itself
		after   time.Duration // when
		says    string
	}{
		{"one", nil, time.Second, never, 0, "Stopping."},
		{"its echo", []time.Duration{0, samePress / 2}, time.Second, never, 0, "Stopping."},
		{"a second one", []time.Duration{2 * time.Second}, time.Hour, exitInterrupted, 2 * time.Second, "Stopped at once."},
		{"a stop that hangs", nil, time.Hour, exitInterrupted, stopWithin, "Not stopped after 20s"},
	} {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				signals := make(chan os.Signal, 4)
				ended := make(chan struct{})
				ctx, cancel := context.WithCancelCause(t.Context())
				defer cancel(nil)
				var stderr bytes.Buffer
				exited, when := never, time.Duration(0)
				start := time.Now()
				done := make(chan struct{})
				go func() {
					defer close(done)
					watchSignals(signals, ended, cancel, &stderr, func(code int) {
						exited, when = code, time.Since(start)
					})
				}()
				synctest.Wait()
				assert.NoError(t, ctx.Err(), "nothing ends before a signal")

				signals <- os.Interrupt
				synctest.Wait()
				assert.ErrorIs(t, context.Cause(ctx), errInterrupted)
				for _, at := range c.further {
					time.Sleep(at - time.Since(start))
					signals <- os.Interrupt
				}
				if c.exits == never {
					time.Sleep(c.ends - time.Since(start))
					close(ended)
				}
				<-done
				assert.Equal(t, c.exits, exited)
				assert.Equal(t, c.after, when)
				assert.Contains(t, stderr.String(), c.says)
			})
		})
	}
}
