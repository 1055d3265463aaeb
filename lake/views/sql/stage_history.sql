-- Whether all events that the lake holds were read. Where not, sums over all that ever happened are unknown.
SELECT COUNT(*) = 0 AS complete FROM open_gaps
