-- The table has the name by which collectors and their documents speak of it.
RENAME TABLE IF EXISTS collector_vitals TO self_metrics;
