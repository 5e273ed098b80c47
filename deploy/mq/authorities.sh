#!/bin/sh
# Gives the gateway's user what it needs and no more.
#
#   authorities.sh QM1 mqgate TELEMETRY 'TELEMETRY.*' topic:PLANT -- COMMANDS COMMANDS.BACKOUT topic:ORDERS
#
# Queues before `--` are put to; queues behind it are consumed from and put back to. `topic:NAME` is the topic object over
# the topics that rules publish to (before) or subscribe to (behind); SYSTEM.BASE.TOPIC where none is nearer. Run as an MQ
# administrator. With DRY_RUN=1 the commands are printed and nothing is changed.
set -eu

[ $# -ge 2 ] || { echo "usage: $0 QUEUE_MANAGER USER [QUEUE TO PUT TO]... [-- QUEUE TO CONSUME]..." >&2; exit 2; }
qmgr=$1 user=$2
shift 2

grant() { # grant PROFILE TYPE AUTHORITIES
    if [ "${DRY_RUN:-}" ]; then
        echo "setmqaut -m $qmgr -n $1 -t $2 -p $user $3"
    else
        # shellcheck disable=SC2086  the authorities are separate words
        setmqaut -m "$qmgr" -n "$1" -t "$2" -p "$user" $3
    fi
}

if [ "${DRY_RUN:-}" ]; then
    echo "setmqaut -m $qmgr -t qmgr -p $user +connect +inq"
else
    setmqaut -m "$qmgr" -t qmgr -p "$user" +connect +inq
fi

# State: everything that putting, taking, browsing and inquiring need. +setid lets a message carry the device's user.
grant 'MQGATE.**' queue '+put +get +browse +inq +setid'

direction=put
for queue in "$@"; do
    case $queue in
    --) direction=consume; continue ;;
    topic:*)
        if [ "$direction" = put ]; then
            grant "${queue#topic:}" topic '+pub'
        else
            grant "${queue#topic:}" topic '+sub +resume'
        fi
        continue ;;
    esac
    if [ "$direction" = put ]; then
        grant "$queue" queue '+put +inq +setid'
    else
        grant "$queue" queue '+put +get +browse +inq +setid'
    fi
done
