-- Which insert brought a row, by a number that its collector drew for it. Until now an
-- insert was known by its microsecond, which two collectors may share: attribution could
-- take the spans of one for read when it had read the other's. Rows from before, and those
-- of collectors that are still of an earlier release, keep the name that they had.
ALTER TABLE spans ADD COLUMN IF NOT EXISTS insert_id UInt64 DEFAULT 0 COMMENT 'of the insert, random; 0: not stated' CODEC(ZSTD(1)) AFTER inserted_at;
ALTER TABLE spans MODIFY COLUMN insert_token UInt64 ALIAS if(insert_id = 0, cityHash64(toUnixTimestamp64Micro(inserted_at), intDiv(end_ns, 86400000000000)), cityHash64(insert_id, intDiv(end_ns, 86400000000000)));
