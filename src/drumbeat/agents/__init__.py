"""Agents that come with drumbeat."""

from drumbeat.agents.command import CommandAgent

__all__ = ["CommandAgent"]
