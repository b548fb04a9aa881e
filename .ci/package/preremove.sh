#!/bin/sh
# Before removal, of which deb says "remove" and rpm 0: the agent is stopped and not started again.
case $1 in
remove | 0) if command -v systemctl >/dev/null; then systemctl --quiet disable --now topoctl-agent.service || :; fi ;;
esac
