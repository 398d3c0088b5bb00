-- What alerts said. Rows are written once and never changed; ones that are written
-- again, by a repeated insert or another collector on the same store, stand once.

-- Each evaluation's numbers of each rule and group, by which an alert can be shown
-- and checked: a query over the views at that instant says the same.
CREATE TABLE IF NOT EXISTS alert_samples
(
    instant DateTime('UTC') CODEC(DoubleDelta, ZSTD(1)),
    rule LowCardinality(String),
    signal LowCardinality(String),
    service LowCardinality(String) COMMENT 'empty: the rule does not group by it, or the spans do not state it',
    environment LowCardinality(String),
    version LowCardinality(String),
    step LowCardinality(String),
    provider LowCardinality(String),
    window_s UInt32 COMMENT 'seconds' CODEC(ZSTD(1)),
    numerator Int64 CODEC(Delta, ZSTD(1)),
    denominator Int64 CODEC(Delta, ZSTD(1)),
    threshold Float64 COMMENT 'a ratio: 0.02 is 2 %' CODEC(ZSTD(1)),
    state LowCardinality(String) COMMENT 'of the alert after the evaluation',
    value Float64 ALIAS numerator / denominator
)
ENGINE = ReplacingMergeTree
PARTITION BY toDate(instant, 'UTC')
ORDER BY (rule, service, environment, version, step, provider, instant)
TTL instant + toIntervalDay(30)
SETTINGS ttl_only_drop_parts = 1;

-- Each change of an alert's state, with the numbers that led to it. The later of two
-- writes of one change wins: it may know more about its cause.
CREATE TABLE IF NOT EXISTS alert_transitions
(
    at DateTime64(3, 'UTC') CODEC(Delta, ZSTD(1)),
    rule LowCardinality(String),
    signal LowCardinality(String),
    service LowCardinality(String) COMMENT 'empty: the rule does not group by it, or the spans do not state it',
    environment LowCardinality(String),
    version LowCardinality(String),
    step LowCardinality(String),
    provider LowCardinality(String),
    fingerprint UInt64 COMMENT 'of the labels, as Alertmanager has it',
    labels Map(LowCardinality(String), String) COMMENT 'of the alert' CODEC(ZSTD(1)),
    from LowCardinality(String),
    to LowCardinality(String),
    reason LowCardinality(String),
    since DateTime64(3, 'UTC') COMMENT 'when the breach began; 1970: never' CODEC(ZSTD(1)),
    starts_at DateTime64(3, 'UTC') COMMENT 'when it fired; 1970: never' CODEC(ZSTD(1)),
    window_s UInt32 COMMENT 'seconds' CODEC(ZSTD(1)),
    numerator Int64 CODEC(ZSTD(1)),
    denominator Int64 CODEC(ZSTD(1)),
    threshold Float64 COMMENT 'a ratio: 0.02 is 2 %' CODEC(ZSTD(1)),
    min_samples Int64 CODEC(ZSTD(1)),
    lasted_ms Int64 COMMENT 'how long a stall had lasted' CODEC(ZSTD(1)),
    top_error String COMMENT 'the most frequent error' CODEC(ZSTD(1)),
    top_error_count Int64 CODEC(ZSTD(1)),
    runs Array(String) COMMENT 'examples' CODEC(ZSTD(1)),
    writer LowCardinality(String) COMMENT 'which collector wrote it',
    written_at DateTime64(6, 'UTC') DEFAULT now64(6, 'UTC') CODEC(Delta, ZSTD(1))
)
ENGINE = ReplacingMergeTree(written_at)
PARTITION BY toYYYYMM(at, 'UTC')
ORDER BY (rule, service, environment, version, step, provider, at, to)
TTL toDateTime(at) + toIntervalDay(400)
SETTINGS ttl_only_drop_parts = 1, fsync_after_insert = 1, fsync_part_directory = 1;
