#!/bin/sh
# After removal: systemd forgets the unit.
if [ -d /run/systemd/system ]; then systemctl daemon-reload || :; fi
