#!/bin/sh
# After installation or upgrade: systemd reads the unit; an agent that runs is started anew.
if [ -d /run/systemd/system ]; then
	systemctl daemon-reload || :
	systemctl try-restart topoctl-agent.service || :
fi
