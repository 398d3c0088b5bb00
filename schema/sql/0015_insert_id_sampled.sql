-- Which insert brought a row, by a number that its collector drew for it. Until now an
-- insert was known by its microsecond, which two collectors may share: attribution could
-- take the spans of one for read when it had read the other's. Rows from before, and those
-- of collectors that are still of an earlier release, keep the name that they had.
ALTER TABLE spans ADD COLUMN IF NOT EXISTS insert_id UInt64 DEFAULT 0 COMMENT 'of the insert, random; 0: not stated' CODEC(ZSTD(1)) AFTER inserted_at;
ALTER TABLE spans MODIFY COLUMN insert_token UInt64 ALIAS if(insert_id = 0, cityHash64(toUnixTimestamp64Micro(inserted_at), intDiv(end_ns, 86400000000000)), cityHash64(insert_id, intDiv(end_ns, 86400000000000)));
-- Of a sampled source spans are missing that no other span tells of: the counts over its
-- runs are lower bounds. Rows from before do not say it, and are taken to be whole.
ALTER TABLE spans ADD COLUMN IF NOT EXISTS sampled Bool DEFAULT false COMMENT 'the span, its scope or its resource says that its source was sampled' AFTER budget_exhausted;

ALTER TABLE ledger
    ADD COLUMN IF NOT EXISTS `runs.sampled` Array(Bool) DEFAULT arrayMap(run -> false, `runs.run_id`) AFTER `runs.warnings`;

CREATE OR REPLACE VIEW runs AS
SELECT
    lower(hex(ledger.trace_id)) AS trace_id,
    ledger.trace_id AS trace_key,
    run_id,
    thread_id,
    service,
    version,
    environment,
    completion,
    quarantined,
    arrayMap(id -> lower(hex(id)), traces) AS trace_ids,
    joined_by,
    unfinished_steps,
    outcome,
    run_limit,
    step_limit,
    retries,
    exhausted,
    deliveries,
    poison_pill,
    needs_review,
    orphan_spans,
    spans,
    dialects,
    sampled,
    start_ns,
    end_ns,
    if(end_ns >= 1577836800000000000 AND end_ns <= last_received_ns, end_ns, last_received_ns) AS end_bounded_ns,
    fromUnixTimestamp64Nano(end_bounded_ns, 'UTC') AS ended_at,
    last_end_ns AS trace_end_ns,
    first_end_ns AS trace_first_end_ns,
    judged_at
FROM ledger FINAL
ARRAY JOIN
        `runs.run_id` AS run_id,
        `runs.thread_id` AS thread_id,
        `runs.service` AS service,
        `runs.version` AS version,
        `runs.environment` AS environment,
        `runs.completion` AS completion,
        `runs.quarantined` AS quarantined,
        `runs.anchor` AS anchor,
        `runs.trace_ids` AS traces,
        `runs.joined_by` AS joined_by,
        `runs.unfinished_steps` AS unfinished_steps,
        `runs.outcome` AS outcome,
        `runs.run_limit` AS run_limit,
        `runs.step_limit` AS step_limit,
        `runs.retries` AS retries,
        `runs.exhausted` AS exhausted,
        `runs.deliveries` AS deliveries,
        `runs.poison_pill` AS poison_pill,
        `runs.needs_review` AS needs_review,
        `runs.orphan_spans` AS orphan_spans,
        `runs.spans` AS spans,
        `runs.dialects` AS dialects,
        `runs.sampled` AS sampled,
        `runs.start_ns` AS start_ns,
        `runs.end_ns` AS end_ns
WHERE anchor;
