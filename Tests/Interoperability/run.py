#!/usr/bin/env python3
"""Runs all checks against a broker and an app of this project: `run.py DYNAMICS SERVICE_APP [--only NAME]`.

One line for each check.
"""

import argparse
import os
import signal

parser = argparse.ArgumentParser(description=__doc__)
parser.add_argument("dynamics", help="the program that has the command broker")
parser.add_argument("service_app", nargs="?", default="", help="the app; without one its checks are left out")
parser.add_argument("--only", help="checks with this in their names")
parser.add_argument("--log", help="a file for what the programs say")
arguments = parser.parse_args()
arguments.dynamics = os.path.abspath(arguments.dynamics)
os.environ["OPENDYNAMICS_SERVICE_APP"] = arguments.service_app and os.path.abspath(arguments.service_app)
os.environ["SWIFT_BACKTRACE"] = "enable=no"
signal.signal(signal.SIGTERM, lambda *_: exit(1))

import attacks_in_memory  # noqa: E402
import attacks_on_a_consumer  # noqa: E402
import attacks_on_an_app  # noqa: E402
import attacks_on_deliveries  # noqa: E402
import attacks_on_the_broker  # noqa: E402
import check_noise  # noqa: E402
import honest  # noqa: E402
import honest_deliveries  # noqa: E402
import sealed  # noqa: E402
from world import Checks  # noqa: E402

checks = Checks(arguments.dynamics, arguments.only, open(arguments.log, "ab") if arguments.log else None)
checks.run(check_noise.CHECKS, has_world=False)
checks.run(honest.CHECKS)
checks.run(attacks_on_the_broker.CHECKS)
if arguments.service_app:
    checks.run(honest_deliveries.CHECKS)
    checks.run(attacks_on_deliveries.CHECKS)
    checks.run(attacks_in_memory.CHECKS)
    checks.run(attacks_on_an_app.CHECKS)
    checks.run(attacks_on_a_consumer.CHECKS)
    checks.run(sealed.CHECKS)
checks.finish()
