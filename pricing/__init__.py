"""Prices, metering and rating: from state changes to exact amounts."""
