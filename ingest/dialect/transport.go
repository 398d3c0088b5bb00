package dialect

import (
	"strings"

	"github.com/retryledger/retryledger/schema"
)

// Clients that write a span, or a number, per send.
var (
	grpcGo   = instrumentation{name: "grpc-go", scopes: []string{"grpc-go"}, read: (*reading).readGRPCGo}
	awsGo    = instrumentation{name: "aws-sdk-go-v2", scopes: []string{"github.com/aws/aws-sdk-go-v2/"}, read: (*reading).readAWSGo}
	undici   = instrumentation{name: "undici", scopes: []string{"@opentelemetry/instrumentation-undici"}, read: (*reading).readUndici}
	botocore = instrumentation{name: "botocore", scopes: []string{"opentelemetry.instrumentation.botocore"}, read: (*reading).readBotocore}
)

// readGRPCGo: attempts are numbered from 0; a transparent retry counts too.
func (r *reading) readGRPCGo() {
	row := r.row
	row.Role = schema.RoleOther
	if !strings.HasPrefix(row.Name, "Attempt.") {
		return
	}
	row.Role = schema.RoleRPC
	if n, ok := r.attrs.count("previous-rpc-attempts"); ok {
		row.Attempt, row.AttemptEvidence = n+1, "attribute"
	}
}

// readAWSGo: attempts are numbered from 1 and have no status of their own.
func (r *reading) readAWSGo() {
	row := r.row
	if row.Role == schema.RoleRPC {
		row.Role = schema.RoleOther // the operation around its attempts
	}
	if row.Failed && row.ErrorClass == "" {
		row.ErrorClass = className(r.attrs.text("api.error_code", "exception.type"))
	}
	if row.Name != "Attempt" {
		return
	}
	row.Role = schema.RoleHTTP
	if n, ok := r.attrs.count("operation.attempt"); ok && n >= 1 {
		row.Attempt, row.AttemptEvidence = n, "attribute"
	}
}

// readBotocore: the one span counts the repeats inside it.
func (r *reading) readBotocore() {
	if n, ok := r.attrs.count("retry_attempts"); ok {
		r.row.RetryCount = n
	}
}

// readUndici: a request that its caller gave up (a timeout, a cancellation) ends without
// a response, a status or an error.
func (r *reading) readUndici() {
	row := r.row
	if row.Role == schema.RoleHTTP && row.HTTPStatus == 0 && !row.Failed && row.Flow == schema.FlowNone {
		row.Flow = schema.FlowCancelled
	}
}
