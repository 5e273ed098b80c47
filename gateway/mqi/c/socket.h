/* The library's side of the socket protocol (docs/reference/mqi-socket.md). A frame: u32 length of what follows, u8 verb,
   u8 flags, u16 tag, body. Numbers are little-endian, as they are in the memory of this platform. */
#ifndef MQGATE_SOCKET_H
#define MQGATE_SOCKET_H

#include "mqm.h"

enum { PROTOCOL_VERSION = 1, NO_REPLY = 1, FRAME_HEADER = 8, LONGEST_FRAME = 112 << 20 };

enum verb {
    VERB_CONNECT = 1, VERB_DISCONNECT, VERB_OPEN, VERB_CLOSE, VERB_PUT, VERB_PUT1, VERB_GET, VERB_BEGIN, VERB_COMMIT, VERB_BACK_OUT,
    VERB_INQUIRE, VERB_SET, VERB_STATUS, VERB_SUBSCRIBE, VERB_SUBSCRIPTION_REQUEST,
};

typedef struct wire {
    int fd;
    buffer out, in;
    size_t frame;              /* where in `out` the frame being written begins */
    uint16_t tag;
    bool full;                 /* memory ran out while a frame was being written */
} wire;

/* An answer being read. A read beyond its end sets `bad`. */
typedef struct answer {
    view rest;
    bool bad;
} answer;

/* `connection_name`: `unix:PATH`, or whatever a program has for a host. */
outcome wire_dial(wire *w, view connection_name);
void wire_close(wire *w);

void frame_begin(wire *w, enum verb verb, int flags);
void frame_i4(wire *w, MQLONG value);
void frame_bytes(wire *w, const void *data, size_t length);
void frame_blob(wire *w, view data);
void frame_field(wire *w, const void *field, size_t size);  /* a blank-padded field as a blob of its text */
outcome frame_send(connection *c, wire *w);                  /* without waiting for an answer */
outcome frame_hold(connection *c, wire *w);                  /* the same, but may keep the frame until more have gathered */
outcome frame_exchange(connection *c, wire *w, answer *a);   /* the outcome the queue manager gave; `a` holds the rest */

MQLONG answer_i4(answer *a);
view answer_bytes(answer *a, size_t length);
view answer_blob(answer *a);
void answer_field(answer *a, void *field, size_t size);      /* a blob into a blank-padded field */
outcome answer_end(connection *c, const answer *a, outcome o);

#endif
