"""Deliverers that come with drumbeat."""

from drumbeat.deliverers.stream import StreamDeliverer

__all__ = ["StreamDeliverer"]
