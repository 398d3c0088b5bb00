-- A repeat in a layer that the instrumentation hides is no retry of any signal, so a
-- brief has it without a charge. Its layout stays. Rows from before are brought up to
-- date beside all else: only replays look back so far.
ALTER TABLE ledger
    MODIFY COLUMN brief String MATERIALIZED formatRow('RowBinary', toUInt8(1),
        `runs.service`, `runs.environment`, `runs.version`, `runs.completion`, `runs.anchor`, `runs.exhausted`,
        arrayMap(ns -> toUInt32(greatest(0, intDiv(if(ns >= 1577836800000000000 AND ns <= last_received_ns, ns, last_received_ns) + 999999999, 1000000000))), `runs.end_ns`),
        `operations.run`, `operations.step`, `operations.grain`, `operations.outcome`, `operations.provider`,
        arrayMap(n -> n > 0, `operations.fallbacks`), `operations.counts_in_step`, `operations.settled`,
        arrayMap(ns -> toUInt32(greatest(0, intDiv(if(ns >= 1577836800000000000 AND ns <= last_received_ns, ns, last_received_ns) + 999999999, 1000000000))), `operations.end_ns`),
        `attempts.run`, `attempts.step`, `attempts.grain`, `attempts.ending`, arrayMap((charge, hidden) -> if(hidden, '', toString(charge)), `attempts.charge`, `attempts.hidden`), `attempts.provider`, `attempts.error_class`,
        arrayMap(status -> toUInt16(greatest(0, least(status, 65535))), `attempts.http_status`),
        arrayMap((i, o) -> greatest(ifNull(i, 0), 0) + greatest(ifNull(o, 0), 0), `attempts.input_tokens`, `attempts.output_tokens`),
        `attempts.counted`, `attempts.wasted`, `attempts.request`, `attempts.midway`, `attempts.violated`,
        arrayMap(ns -> toUInt32(greatest(0, intDiv(if(ns >= 1577836800000000000 AND ns <= last_received_ns, ns, last_received_ns) + 999999999, 1000000000))), `attempts.end_ns`),
        `violations.run`, `violations.node`, `violations.count`,
        arrayMap(ns -> toUInt32(greatest(0, intDiv(if(ns >= 1577836800000000000 AND ns <= last_received_ns, ns, last_received_ns) + 999999999, 1000000000))), `violations.time_ns`)
    ) CODEC(ZSTD(6));

ALTER TABLE ledger MATERIALIZE COLUMN brief;
