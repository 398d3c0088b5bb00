package replay

import (
	"bytes"
	"compress/gzip"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strings"
	"time"

	"go.opentelemetry.io/collector/pdata/ptrace"
	"go.opentelemetry.io/collector/pdata/ptrace/ptraceotlp"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/credentials/insecure"
	grpcgzip "google.golang.org/grpc/encoding/gzip"
	"google.golang.org/grpc/metadata"
)

// ErrRefused is returned when a receiver answered that it does not take the spans, all
// of them or some. Sending the same again will not help.
var ErrRefused = errors.New("the receiver refused the spans")

// ErrUnavailable is returned when no receiver answered, or one asked to try again.
var ErrUnavailable = errors.New("the receiver is not available")

// Sender sends OTLP trace export requests and waits for their acknowledgement.
type Sender interface {
	// Send returns nil when every span was acknowledged.
	Send(ctx context.Context, td ptrace.Traces) error
	Close() error
}

// Encoding is how an HTTP sender writes a request.
type Encoding string

// The encodings that OTLP over HTTP has.
const (
	Protobuf Encoding = "application/x-protobuf"
	JSON     Encoding = "application/json"
)

// most of an answer that is read, in bytes.
const maxAnswer = 64 << 10

// Access is how a receiver is reached that asks who it is. The zero value is for one that
// does not.
type Access struct {
	TLS           *tls.Config // nil: what the system trusts, where the address is https
	Authorization string      // the header's value
}

// Transport is one that shows the certificates.
func (a Access) Transport() *http.Transport {
	return &http.Transport{Proxy: http.ProxyFromEnvironment, TLSClientConfig: a.TLS, ForceAttemptHTTP2: true}
}

// Authorize adds the header.
func (a Access) Authorize(r *http.Request) {
	if a.Authorization != "" {
		r.Header.Set("Authorization", a.Authorization)
	}
}

type httpSender struct {
	target   string
	encoding Encoding
	compress bool
	access   Access
	client   *http.Client
}

// NewHTTP sends to an OTLP HTTP receiver such as "http://127.0.0.1:4318"; /v1/traces is
// added if the endpoint has no path.
func NewHTTP(endpoint string, encoding Encoding, compress bool, access Access) (Sender, error) {
	if !strings.Contains(endpoint, "://") {
		endpoint = "http://" + endpoint
	}
	target, err := url.Parse(endpoint)
	if err != nil || target.Host == "" || target.Scheme != "http" && target.Scheme != "https" {
		return nil, fmt.Errorf("read the endpoint %q: write it as http://127.0.0.1:4318", endpoint)
	}
	if strings.Trim(target.Path, "/") == "" {
		target = target.JoinPath("v1", "traces")
	}
	return &httpSender{
		target: target.String(), encoding: encoding, compress: compress, access: access,
		client: &http.Client{Timeout: 30 * time.Second, Transport: access.Transport()},
	}, nil
}

func (s *httpSender) Send(ctx context.Context, td ptrace.Traces) error {
	request := ptraceotlp.NewExportRequestFromTraces(td)
	encode := request.MarshalProto
	if s.encoding == JSON {
		encode = request.MarshalJSON
	}
	body, err := encode()
	if err != nil {
		return fmt.Errorf("encode a request as %s: %w", s.encoding, err)
	}
	if s.compress {
		if body, err = zipped(body); err != nil {
			return err
		}
	}
	post, err := http.NewRequestWithContext(ctx, http.MethodPost, s.target, bytes.NewReader(body))
	if err != nil {
		return fmt.Errorf("send to %s: %w", s.target, err)
	}
	s.access.Authorize(post)
	post.Header.Set("Content-Type", string(s.encoding))
	if s.compress {
		post.Header.Set("Content-Encoding", "gzip")
	}
	response, err := s.client.Do(post)
	if err != nil {
		return fmt.Errorf("%w: %w", ErrUnavailable, err)
	}
	defer func() { _ = response.Body.Close() }()
	answer, err := io.ReadAll(io.LimitReader(response.Body, maxAnswer))
	if err != nil {
		return fmt.Errorf("%w: read the acknowledgement: %w", ErrUnavailable, err)
	}
	switch response.StatusCode {
	case http.StatusOK:
	case http.StatusTooManyRequests, http.StatusBadGateway, http.StatusServiceUnavailable, http.StatusGatewayTimeout:
		return fmt.Errorf("%w: %s answered %s", ErrUnavailable, s.target, response.Status)
	default:
		return fmt.Errorf("%w: %s answered %s", ErrRefused, s.target, response.Status)
	}
	ack := ptraceotlp.NewExportResponse()
	decode := ack.UnmarshalProto
	if strings.HasPrefix(response.Header.Get("Content-Type"), string(JSON)) {
		decode = ack.UnmarshalJSON
	}
	if err := decode(answer); err != nil {
		return fmt.Errorf("%w: %s gave no OTLP acknowledgement; is it an OTLP receiver? (%w)", ErrRefused, s.target, err)
	}
	return partial(ack)
}

func (s *httpSender) Close() error {
	s.client.CloseIdleConnections()
	return nil
}

type grpcSender struct {
	conn     *grpc.ClientConn
	client   ptraceotlp.GRPCClient
	compress bool
	access   Access
}

// NewGRPC sends to an OTLP gRPC receiver such as "127.0.0.1:4317", in the clear unless
// access has settings of TLS.
func NewGRPC(target string, compress bool, access Access) (Sender, error) {
	transport := insecure.NewCredentials()
	if access.TLS != nil {
		transport = credentials.NewTLS(access.TLS)
	}
	conn, err := grpc.NewClient(target, grpc.WithTransportCredentials(transport))
	if err != nil {
		return nil, fmt.Errorf("read the endpoint %q: %w", target, err)
	}
	return &grpcSender{conn: conn, client: ptraceotlp.NewGRPCClient(conn), compress: compress, access: access}, nil
}

func (s *grpcSender) Send(ctx context.Context, td ptrace.Traces) error {
	var opts []grpc.CallOption
	if s.compress {
		opts = append(opts, grpc.UseCompressor(grpcgzip.Name))
	}
	if s.access.Authorization != "" {
		ctx = metadata.AppendToOutgoingContext(ctx, "authorization", s.access.Authorization)
	}
	ack, err := s.client.Export(ctx, ptraceotlp.NewExportRequestFromTraces(td), opts...)
	if err != nil {
		return fmt.Errorf("%w: send over gRPC: %w", grpcKind(err), err)
	}
	return partial(ack)
}

func (s *grpcSender) Close() error {
	if err := s.conn.Close(); err != nil {
		return fmt.Errorf("close the gRPC connection: %w", err)
	}
	return nil
}

// partial turns a partial success into an error: every span of a replay is meant to
// arrive.
func partial(ack ptraceotlp.ExportResponse) error {
	if rejected := ack.PartialSuccess().RejectedSpans(); rejected > 0 {
		return fmt.Errorf("%w: %d rejected: %s", ErrRefused, rejected, ack.PartialSuccess().ErrorMessage())
	}
	return nil
}

func zipped(body []byte) ([]byte, error) {
	var buffer bytes.Buffer
	w := gzip.NewWriter(&buffer)
	if _, err := w.Write(body); err != nil {
		return nil, fmt.Errorf("compress a request: %w", err)
	}
	if err := w.Close(); err != nil {
		return nil, fmt.Errorf("compress a request: %w", err)
	}
	return buffer.Bytes(), nil
}
