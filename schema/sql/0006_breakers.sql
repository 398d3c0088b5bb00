-- Each provider's circuit breaker as any collector on this store had it last, so
-- that a restart takes it up and collectors agree.
CREATE TABLE IF NOT EXISTS breakers
(
    provider String CODEC(ZSTD(1)),
    at DateTime64(3, 'UTC') COMMENT 'when it changed last' CODEC(ZSTD(1)),
    trips Int64 COMMENT 'how often it has opened' CODEC(ZSTD(1)),
    state String COMMENT 'the breaker, as JSON' CODEC(ZSTD(1)),
    version UInt64 COMMENT 'trips, then milliseconds of at: the one that is further on wins' CODEC(ZSTD(1))
)
ENGINE = ReplacingMergeTree(version)
ORDER BY provider
TTL toDateTime(at) + toIntervalDay(400)
SETTINGS fsync_after_insert = 1, fsync_part_directory = 1;

-- Each change of a breaker's state, with what decided it. Collectors on one store that
-- see the same change write one row.
CREATE TABLE IF NOT EXISTS breaker_transitions
(
    at DateTime64(3, 'UTC') CODEC(Delta, ZSTD(1)),
    provider LowCardinality(String),
    from LowCardinality(String),
    to LowCardinality(String),
    why String CODEC(ZSTD(1)),
    requests Int64 CODEC(ZSTD(1)),
    server_errors Int64 CODEC(ZSTD(1)),
    throttled Int64 CODEC(ZSTD(1)),
    writer LowCardinality(String) COMMENT 'which collector wrote it'
)
ENGINE = ReplacingMergeTree
PARTITION BY toYYYYMM(at, 'UTC')
ORDER BY (provider, at, to)
TTL toDateTime(at) + toIntervalDay(400)
SETTINGS ttl_only_drop_parts = 1, fsync_after_insert = 1, fsync_part_directory = 1;
