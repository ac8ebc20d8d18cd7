"""What every layer may use: clocks, chance, ids, money, intervals, errors, log."""
