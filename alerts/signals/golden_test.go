package signals_test

var golden = map[string]string{
	"py-openinference/d_orchestrator_7": `
		attempt_error resolve mockai: 0 of 1
		budget_exhausted: 0 of 1
		call_operation_error resolve mockai: 0 of 1
		contract_violation dispatch: 0 of 3
		contract_violation rank: 0 of 1
		contract_violation recover: 0 of 2
		contract_violation resolve: 0 of 7
		fallback dispatch: 0 of 3
		fallback rank: 0 of 1
		fallback recover: 0 of 2
		fallback resolve: 0 of 1
		incomplete_run: 0 of 1
		operation_error dispatch: 0 of 3
		operation_error rank: 0 of 1
		operation_error recover: 0 of 2
		operation_error resolve: 0 of 1
		retry dispatch: 0 of 3
		retry rank: 0 of 1
		retry recover: 0 of 2
		retry resolve: 6 of 1
		server_error resolve mockai: 0 of 1
		stream_midway_failure resolve mockai: 0 of 1
		throttled resolve mockai: 0 of 1
		wasted_token resolve mockai: 0 of 155`,
	"py-openinference/a_client_retry": `
		attempt_error resolve mockai: 2 of 3
		budget_exhausted: 0 of 1
		call_operation_error resolve mockai: 0 of 1
		contract_violation ingest: 0 of 1
		contract_violation rank: 0 of 1
		contract_violation resolve: 0 of 1
		fallback ingest: 0 of 1
		fallback rank: 0 of 1
		fallback resolve: 0 of 1
		incomplete_run: 0 of 1
		operation_error ingest: 0 of 1
		operation_error rank: 0 of 1
		operation_error resolve: 0 of 1
		retry ingest: 0 of 1
		retry rank: 0 of 1
		retry resolve: 2 of 1
		server_error resolve mockai: 1 of 3
		stream_midway_failure resolve mockai: 0 of 1
		throttled resolve mockai: 1 of 3
		wasted_token resolve mockai: 0 of 155`,
	"py-openinference/e3_fallback_all_fail": `
		attempt_error resolve mockai: 3 of 3
		budget_exhausted: 0 of 1
		call_operation_error resolve mockai: 1 of 1
		contract_violation ingest: 0 of 1
		contract_violation resolve: 0 of 1
		fallback ingest: 0 of 1
		fallback resolve: 1 of 1
		incomplete_run: 0 of 1
		operation_error ingest: 0 of 1
		operation_error resolve: 1 of 1
		retry ingest: 0 of 1
		retry resolve: 0 of 1
		server_error resolve mockai: 2 of 3
		throttled resolve mockai: 1 of 3`,
	"py-openinference/h1_contract_with_root": `
		attempt_error resolve mockai: 0 of 1
		budget_exhausted: 0 of 1
		call_operation_error resolve mockai: 0 of 1
		contract_violation ingest: 0 of 1
		contract_violation rank: 1 of 1
		contract_violation resolve: 1 of 1
		fallback ingest: 0 of 1
		fallback rank: 0 of 1
		fallback resolve: 0 of 1
		incomplete_run: 0 of 1
		operation_error ingest: 0 of 1
		operation_error rank: 1 of 1
		operation_error resolve: 1 of 1
		retry ingest: 0 of 1
		retry rank: 0 of 1
		retry resolve: 0 of 1
		server_error resolve mockai: 0 of 1
		stream_midway_failure resolve mockai: 0 of 1
		throttled resolve mockai: 0 of 1
		wasted_token resolve mockai: 155 of 155`,
	"py-openinference/i3_killed": `
		attempt_error resolve mockai: 1 of 2
		budget_exhausted: 0 of 1
		call_operation_error resolve mockai: 0 of 1
		contract_violation ingest: 0 of 1
		contract_violation resolve: 0 of 1
		fallback ingest: 0 of 1
		fallback resolve: 0 of 1
		operation_error ingest: 0 of 1
		operation_error resolve: 0 of 1
		retry ingest: 0 of 1
		retry resolve: 1 of 1
		server_error resolve mockai: 0 of 2
		stream_midway_failure resolve mockai: 0 of 1
		throttled resolve mockai: 1 of 2
		wasted_token resolve mockai: 0 of 155`,
	"py-openinference/n12_shared_budget": `
		budget_exhausted: 1 of 1
		contract_violation ingest: 0 of 1
		contract_violation resolve: 0 of 4
		fallback ingest: 0 of 1
		fallback resolve: 0 of 1
		incomplete_run: 1 of 1
		operation_error ingest: 0 of 1
		operation_error resolve: 1 of 1
		retry ingest: 0 of 1
		retry resolve: 3 of 1`,
	"ai-sdk-6/g2_stream_midway": `
		attempt_error resolve mockai.chat: 1 of 1
		budget_exhausted: 0 of 1
		call_operation_error resolve mockai.chat: 1 of 1
		contract_violation resolve: 0 of 1
		fallback resolve: 0 of 1
		incomplete_run: 0 of 1
		operation_error resolve: 0 of 1
		retry resolve: 0 of 1
		server_error resolve mockai.chat: 0 of 1
		stream_midway_failure resolve mockai.chat: 1 of 1
		throttled resolve mockai.chat: 0 of 1`,
	"anthropic-go/rate_limit": `
		attempt_error resolve anthropic: 0 of 1
		budget_exhausted: 0 of 1
		call_operation_error resolve anthropic: 0 of 1
		contract_violation resolve: 0 of 1
		fallback resolve: 0 of 1
		incomplete_run: 0 of 1
		operation_error resolve: 0 of 1
		retry resolve: 1 of 1
		server_error resolve anthropic: 0 of 2
		stream_midway_failure resolve anthropic: 0 of 1
		throttled resolve anthropic: 1 of 2
		wasted_token resolve anthropic: 0 of 26`,
	"aws-sdk-go-v2/bedrock_exhausted": `
		budget_exhausted: 0 of 1
		contract_violation resolve: 0 of 1
		fallback resolve: 0 of 1
		incomplete_run: 1 of 1
		operation_error resolve: 1 of 1
		retry resolve: 2 of 1
		server_error resolve: 0 of 1
		throttled resolve: 0 of 1`,
	"grpc-go/exhausted": `
		budget_exhausted: 0 of 1
		contract_violation resolve: 0 of 1
		fallback resolve: 0 of 1
		incomplete_run: 1 of 1
		operation_error resolve: 1 of 1
		retry resolve: 2 of 1
		server_error resolve: 0 of 3
		throttled resolve: 0 of 3`,
	"otelhttp-go/exhausted": `
		budget_exhausted: 0 of 1
		contract_violation resolve: 0 of 1
		fallback resolve: 0 of 1
		incomplete_run: 1 of 1
		operation_error resolve: 1 of 1
		retry resolve: 3 of 1
		server_error resolve: 4 of 4
		throttled resolve: 0 of 4`,
}
