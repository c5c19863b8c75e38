"""Decides: values in, values out. Nothing here reads a clock, touches a disk or awaits."""
