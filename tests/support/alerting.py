"""The alert process by itself: ``python -c PROGRAM LAKE SETTINGS``, the settings as JSON; SIGTERM ends it."""

PROGRAM = """
import json, logging, signal, sys, threading
from pathlib import Path
from alerts.run import run
from alerts.settings import AlertSettings
logging.basicConfig(level="INFO")
stop = threading.Event()
signal.signal(signal.SIGTERM, lambda *_: stop.set())
run(AlertSettings.model_validate_json(sys.argv[2]), Path(sys.argv[1]), stop, once=False)
"""
