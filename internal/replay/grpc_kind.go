package replay

import (
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

// grpcKind tells by the code whether sending again may help, as OTLP defines it.
func grpcKind(err error) error {
	switch status.Code(err) { //nolint:exhaustive // OTLP names the codes that may be retried
	case codes.Canceled, codes.DeadlineExceeded, codes.Aborted, codes.OutOfRange, codes.Unavailable, codes.DataLoss, codes.ResourceExhausted:
		return ErrUnavailable
	default:
		return ErrRefused
	}
}
