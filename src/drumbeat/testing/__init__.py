"""The kit for hosts: parts to test with, a clock to drive, and checks for what a host brings."""

from drumbeat.testing._agents import Said, Scripted, ScriptedAgent
from drumbeat.testing._checks import check_agent, check_deliverer, check_mail_source
from drumbeat.testing._clock import ManualClock
from drumbeat.testing._deliverers import RecordingDeliverer
from drumbeat.testing._drive import drive
from drumbeat.testing._examples import example_intent, example_turn
from drumbeat.testing._mailbox import ScriptedMailbox
from drumbeat.testing._store import check_store

__all__ = [
    "ManualClock",
    "RecordingDeliverer",
    "Said",
    "Scripted",
    "ScriptedAgent",
    "ScriptedMailbox",
    "check_agent",
    "check_deliverer",
    "check_mail_source",
    "check_store",
    "drive",
    "example_intent",
    "example_turn",
]
