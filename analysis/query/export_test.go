package query

import (
	"context"

	"github.com/retryledger/retryledger/analysis/answer"
)

// TopInTurn is Top where the store's memory does not suffice for all at once.
func TopInTurn(ctx context.Context, a Asker, f answer.Filter) (answer.Top, error) {
	top, err := a.top(ctx, f, answerStatements[1])
	top.Finish(f.Limit)
	return top, err
}
