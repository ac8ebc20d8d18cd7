"""Units of systemd in a box: what systemctl and journalctl are there."""
