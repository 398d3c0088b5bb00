-- Sentences about what is suspicious in a run. Rows from before have none.
ALTER TABLE ledger
    ADD COLUMN IF NOT EXISTS `runs.warnings` Array(Array(String)) DEFAULT arrayMap(run -> CAST([], 'Array(String)'), `runs.run_id`) AFTER `runs.end_ns`;
