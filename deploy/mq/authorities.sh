#!/bin/sh
# Gives the gateway's user what it needs and no more.
#
#   authorities.sh QM1 mqgate TELEMETRY 'TELEMETRY.*' -- COMMANDS COMMANDS.BACKOUT
#
# Queues before `--` are put to; queues behind it are consumed from and put back to. Run as an MQ administrator. With
# DRY_RUN=1 the commands are printed and nothing is changed.
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

# Rules that subscribe to MQ topics: give +sub on the topic object over them as well, SYSTEM.BASE.TOPIC if none is nearer:
#   setmqaut -m QM1 -n SYSTEM.BASE.TOPIC -t topic -p mqgate +sub +resume

direction=put
for queue in "$@"; do
    case $queue in
    --) direction=consume; continue ;;
    esac
    if [ "$direction" = put ]; then
        grant "$queue" queue '+put +inq +setid'
    else
        grant "$queue" queue '+put +get +browse +inq +setid'
    fi
done
