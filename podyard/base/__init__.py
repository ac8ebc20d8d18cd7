"""The bottom layer, for all others: clocks, chance, ids, money, intervals, errors, log."""
