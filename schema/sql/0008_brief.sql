-- What the signals of alerts look at, in one column instead of forty, so that an
-- evaluation each second reads little; and which insert wrote a row. Parts from before
-- have neither and compute them when they are read, until they are merged.

-- A brief is RowBinary: the version of its layout, then one array for each field, as
-- long as there are runs, operations, attempts and violations. Ends are the second that
-- windows count them in: bounded by the time of receipt, rounded up.
ALTER TABLE ledger
    ADD COLUMN IF NOT EXISTS write_id UInt64 DEFAULT bitOr(bitShiftLeft(toUInt64(randConstant(1)), 32), toUInt64(randConstant(2))) COMMENT 'of the insert, random' CODEC(ZSTD(1)),
    ADD COLUMN IF NOT EXISTS brief String MATERIALIZED formatRow('RowBinary', toUInt8(1),
        `runs.service`, `runs.environment`, `runs.version`, `runs.completion`, `runs.anchor`, `runs.exhausted`,
        arrayMap(ns -> toUInt32(greatest(0, intDiv(if(ns >= 1577836800000000000 AND ns <= last_received_ns, ns, last_received_ns) + 999999999, 1000000000))), `runs.end_ns`),
        `operations.run`, `operations.step`, `operations.grain`, `operations.outcome`, `operations.provider`,
        arrayMap(n -> n > 0, `operations.fallbacks`), `operations.counts_in_step`, `operations.settled`,
        arrayMap(ns -> toUInt32(greatest(0, intDiv(if(ns >= 1577836800000000000 AND ns <= last_received_ns, ns, last_received_ns) + 999999999, 1000000000))), `operations.end_ns`),
        `attempts.run`, `attempts.step`, `attempts.grain`, `attempts.ending`, `attempts.charge`, `attempts.provider`, `attempts.error_class`,
        arrayMap(status -> toUInt16(greatest(0, least(status, 65535))), `attempts.http_status`),
        arrayMap((i, o) -> greatest(ifNull(i, 0), 0) + greatest(ifNull(o, 0), 0), `attempts.input_tokens`, `attempts.output_tokens`),
        `attempts.counted`, `attempts.wasted`, `attempts.request`, `attempts.midway`, `attempts.violated`,
        arrayMap(ns -> toUInt32(greatest(0, intDiv(if(ns >= 1577836800000000000 AND ns <= last_received_ns, ns, last_received_ns) + 999999999, 1000000000))), `attempts.end_ns`),
        `violations.run`, `violations.node`, `violations.count`,
        arrayMap(ns -> toUInt32(greatest(0, intDiv(if(ns >= 1577836800000000000 AND ns <= last_received_ns, ns, last_received_ns) + 999999999, 1000000000))), `violations.time_ns`)
    ) CODEC(ZSTD(6));
