-- Phase 1: one narrow row per span. Identity is (trace_id, span_id): of two
-- contents with one id the later end wins, then the larger hash, never the
-- arrival. Two versions whose ends lie in different minutes both stay in the
-- table, so readers keep the largest version of each id.
CREATE TABLE IF NOT EXISTS spans
(
    trace_id FixedString(16) CODEC(ZSTD(1)),
    span_id FixedString(8) CODEC(NONE),
    parent_id FixedString(8) COMMENT 'eight zero bytes: a root' CODEC(LZ4),
    start_ns Int64 COMMENT 'nanoseconds since the epoch, as the span states it' CODEC(Delta, ZSTD(1)),
    end_ns Int64 COMMENT 'nanoseconds since the epoch, as the span states it' CODEC(Delta, ZSTD(1)),
    received_ns Int64 COMMENT 'when the collector received it, nanoseconds since the epoch' CODEC(Delta, ZSTD(1)),
    inserted_at DateTime64(6, 'UTC') DEFAULT now64(6, 'UTC') COMMENT 'when the store took it' CODEC(Delta, ZSTD(1)),
    content_hash UInt64 CODEC(NONE),
    version UInt128 MATERIALIZED bitOr(bitShiftLeft(toUInt128(greatest(end_ns, 0)), 64), toUInt128(content_hash)) CODEC(ZSTD(1)),
    end_bounded_ns Int64 ALIAS if(end_ns >= 1577836800000000000 AND end_ns <= received_ns, end_ns, received_ns),
    insert_token UInt64 ALIAS cityHash64(toUnixTimestamp64Micro(inserted_at), intDiv(end_ns, 86400000000000)),

    service LowCardinality(String),
    service_version LowCardinality(String),
    environment LowCardinality(String),
    scope LowCardinality(String),
    dialect LowCardinality(String),
    name LowCardinality(String),
    role LowCardinality(String),
    client_kind Bool,

    run_id String CODEC(ZSTD(1)),
    run_id_rank Int8,
    thread_id String CODEC(ZSTD(1)),
    run_attempt Int32 COMMENT '0: not stated' CODEC(ZSTD(1)),
    worker_id LowCardinality(String),
    heartbeat Bool,

    step LowCardinality(String),
    node LowCardinality(String),
    task_key String CODEC(ZSTD(1)),
    graph_step Nullable(Int32) CODEC(ZSTD(1)),
    graph_root Bool,
    node_run Nullable(Bool),
    hidden Bool,

    attempt Int32 COMMENT 'first try = 1; 0: not stated' CODEC(ZSTD(1)),
    attempt_evidence LowCardinality(String),
    retry_layer LowCardinality(String),
    attempt_limit Int32 COMMENT 'the first try included; 0: not stated' CODEC(ZSTD(1)),
    retry_count Nullable(Int32) CODEC(ZSTD(1)),
    resend_count Nullable(Int32) CODEC(ZSTD(1)),
    `retry_events.time_ns` Array(Int64) CODEC(ZSTD(1)),
    `retry_events.attempt` Array(Int32) CODEC(ZSTD(1)),
    `retry_events.error_class` Array(LowCardinality(String)),
    `retry_events.http_status` Array(Int32) CODEC(ZSTD(1)),
    stated_attempts Int32 CODEC(ZSTD(1)),
    stated_exhausted Bool,

    fallback Nullable(Int32) COMMENT 'ordinal of the candidate, 0 = primary' CODEC(ZSTD(1)),
    fallback_from LowCardinality(String),
    fallback_to LowCardinality(String),
    fallback_reason LowCardinality(String),
    fallback_events Int32 CODEC(ZSTD(1)),
    fallback_wrapper Bool,
    retry_wrapper Bool,
    needs_review Bool,

    failed Bool,
    status_ok Bool,
    flow LowCardinality(String),
    error_class LowCardinality(String),
    http_status Int32 COMMENT '0: not stated' CODEC(ZSTD(1)),
    output_failed Bool,
    output_reason LowCardinality(String),
    step_failed Nullable(Bool),

    model LowCardinality(String),
    response_model LowCardinality(String),
    provider LowCardinality(String),
    input_tokens Nullable(Int64) CODEC(ZSTD(1)),
    output_tokens Nullable(Int64) CODEC(ZSTD(1)),
    cost_usd Nullable(Float64) CODEC(ZSTD(1)),
    finish_reason LowCardinality(String),
    input_hash UInt64 CODEC(ZSTD(1)),
    item_hash UInt64 CODEC(ZSTD(1)),

    `violations.node` Array(LowCardinality(String)),
    `violations.key` Array(LowCardinality(String)),
    `violations.direction` Array(LowCardinality(String)),
    `violations.time_ns` Array(Int64) CODEC(ZSTD(1)),
    contract_span Bool,
    complete Nullable(Bool),
    unfinished_steps Array(LowCardinality(String)),
    run_cancelled Bool,
    run_limit Int32 CODEC(ZSTD(1)),
    step_limit Int32 CODEC(ZSTD(1)),
    budget_exhausted Bool,

    INDEX inserted_at_range inserted_at TYPE minmax GRANULARITY 1,
    INDEX trace_id_bloom trace_id TYPE bloom_filter(0.01) GRANULARITY 1
)
ENGINE = ReplacingMergeTree(version)
PARTITION BY if(end_ns >= 1577836800000000000 AND end_ns < 4102444800000000000, toDate(intDiv(end_ns, 1000000000), 'UTC'), toDate(0))
ORDER BY (intDiv(end_ns, 60000000000), trace_id, span_id)
TTL toDateTime(intDiv(received_ns, 1000000000), 'UTC') + toIntervalDay({spans_days})
SETTINGS ttl_only_drop_parts = 1, materialize_ttl_recalculate_only = 1, fsync_after_insert = 1, fsync_part_directory = 1;

-- What finds the traces of a run: a trace by itself (and between which ends
-- its spans lie), by its explicit run id, its thread and its tasks.
-- Written before the spans, so who sees a span sees its keys.
CREATE TABLE IF NOT EXISTS run_keys
(
    key_hash UInt64,
    trace_id FixedString(16) CODEC(ZSTD(1)),
    first_end_ns SimpleAggregateFunction(min, Int64) CODEC(Delta, ZSTD(1)),
    last_end_ns SimpleAggregateFunction(max, Int64) CODEC(Delta, ZSTD(1)),
    graph_root SimpleAggregateFunction(max, UInt8) COMMENT '1: a span under this key is a graph''s own root',
    received_at SimpleAggregateFunction(max, DateTime('UTC')) CODEC(Delta, ZSTD(1))
)
ENGINE = AggregatingMergeTree
ORDER BY (key_hash, trace_id)
TTL received_at + toIntervalDay({spans_days})
SETTINGS materialize_ttl_recalculate_only = 1, fsync_after_insert = 1, fsync_part_directory = 1;
