/* Frames over a Unix socket: written into one buffer and sent together; answers are read whole. Any error of the socket or of the
   protocol is 2009 from then on. */
#include <errno.h>
#include <poll.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include "socket.h"

/* ---- the socket --------------------------------------------------------------------------------------------------------------- */

static const char scheme[] = "unix:";
static const size_t scheme_length = sizeof scheme - 1;

static view without_scheme(view where) {
    if (where.length < scheme_length || memcmp(where.data, scheme, scheme_length)) return where;
    return (view){where.data + scheme_length, where.length - scheme_length};
}

/* A connection name `unix:PATH` is the socket itself; any other is that of a host, for which the environment names one. */
static view socket_path(view connection_name) {
    view path = without_scheme(connection_name);
    if (path.length != connection_name.length) return path;
    const char *where = getenv("MQGATE_MQI");
    if (!where || !*where) where = "mqgate-data/mqi.sock";
    return without_scheme((view){(const unsigned char *)where, strlen(where)});
}

outcome wire_dial(wire *w, view connection_name) {
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    view path = socket_path(connection_name);
    if (path.length >= sizeof address.sun_path) return failed(RC_QMGR_NOT_AVAILABLE);
    if (path.length) memcpy(address.sun_path, path.data, path.length);
    w->fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (w->fd < 0) return failed(RC_RESOURCE);
    int rc;
    while ((rc = connect(w->fd, (struct sockaddr *)&address, sizeof address)) && errno == EINTR) {}
    if (!rc) return done;
    MQLONG reason = errno == EACCES || errno == EPERM ? 2035 : RC_QMGR_NOT_AVAILABLE;
    close(w->fd);
    w->fd = -1;
    return failed(reason);
}

void wire_close(wire *w) {
    if (w->fd >= 0) close(w->fd);
    w->fd = -1;
    buffer_free(&w->out);
    buffer_free(&w->in);
}

static bool send_all(wire *w) {
    for (size_t sent = 0; sent < w->out.length;) {
        ssize_t n = send(w->fd, w->out.data + sent, w->out.length - sent, MSG_NOSIGNAL);
        if (n < 0 && errno == EINTR) continue;
        if (n <= 0) return false;
        sent += (size_t)n;
    }
    w->out.length = 0;
    return true;
}

/* What has come, at most `room` bytes; 0 or less: the connection is gone. Waits in poll(): in recv() a thread would be woken once
   more when the queue manager has read what it sent, which costs both of them a switch. */
static ssize_t receive_some(const wire *w, void *to, size_t room) {
    struct pollfd arrival = {.fd = w->fd, .events = POLLIN};
    for (;;) {
        if (poll(&arrival, 1, -1) < 0) {
            if (errno == EINTR) continue;
            return -1;
        }
        ssize_t n = recv(w->fd, to, room, MSG_DONTWAIT);
        if (n >= 0 || (errno != EINTR && errno != EAGAIN)) return n;
    }
}

/* ---- writing ------------------------------------------------------------------------------------------------------------------ */

void frame_bytes(wire *w, const void *data, size_t length) { w->full |= !buffer_add(&w->out, data, length); }

void frame_i4(wire *w, MQLONG value) { frame_bytes(w, &value, sizeof value); }

void frame_blob(wire *w, view data) {
    frame_i4(w, (MQLONG)data.length);
    frame_bytes(w, data.data, data.length);
}

void frame_field(wire *w, const void *field, size_t size) { frame_blob(w, field_view(field, size)); }

void frame_begin(wire *w, enum verb verb, int flags) {
    unsigned char start[4] = {(unsigned char)verb, (unsigned char)flags};
    w->frame = w->out.length;
    w->full = false;
    w->tag++;
    memcpy(start + 2, &w->tag, 2);
    frame_i4(w, 0);
    frame_bytes(w, start, sizeof start);
}

static outcome frame_end(wire *w) {
    size_t length = w->out.length - w->frame - 4;
    if (w->full || length > LONGEST_FRAME) {
        w->out.length = w->frame;  /* nothing of this frame has been sent; those before it stay in the buffer */
        return failed(w->full ? RC_STORAGE : 2031);
    }
    uint32_t size = (uint32_t)length;
    memcpy(w->out.data + w->frame, &size, 4);
    return done;
}

static outcome broken(connection *c) {
    c->broken = true;
    return failed(RC_CONNECTION_BROKEN);
}

enum { PIPELINE_ROOM = 64 * 1024 };

/* `frame_hold` may leave an asynchronous put of a unit of work in the buffer: it is sent with the commit at the latest. */
outcome frame_send(connection *c, wire *w) {
    outcome o = frame_end(w);
    if (is_failed(o)) return o;
    return send_all(w) ? done : broken(c);
}

outcome frame_hold(connection *c, wire *w) {
    outcome o = frame_end(w);
    if (is_failed(o) || w->out.length < PIPELINE_ROOM) return o;
    return send_all(w) ? done : broken(c);
}

/* ---- reading ------------------------------------------------------------------------------------------------------------------ */

enum { USUAL_FRAME = 4096 };

/* One answer, its header in front: usually it is there at once. */
static bool receive_frame(wire *w) {
    uint32_t length;
    uint16_t tag;
    size_t whole = FRAME_HEADER, have = 0;
    w->in.length = 0;
    if (!buffer_reserve(&w->in, USUAL_FRAME)) return false;
    for (bool measured = false; !measured || have < whole;) {
        ssize_t n = receive_some(w, w->in.data + have, w->in.capacity - have);
        if (n <= 0) return false;
        have += (size_t)n;
        if (measured || have < FRAME_HEADER) continue;
        memcpy(&length, w->in.data, 4);
        memcpy(&tag, w->in.data + 6, 2);
        if (length < FRAME_HEADER - 4 || length > LONGEST_FRAME || tag != w->tag) return false;
        whole = (size_t)length + 4;
        measured = true;
        w->in.length = have;  /* kept when there is to be more room */
        if (whole > have && !buffer_reserve(&w->in, whole - have)) return false;
    }
    w->in.length = have;
    return have == whole;  /* nothing follows an answer that is not asked for */
}

outcome frame_exchange(connection *c, wire *w, answer *a) {
    outcome o = frame_end(w);
    if (is_failed(o)) return o;
    if (!send_all(w) || !receive_frame(w)) return broken(c);
    view whole = buffer_view(&w->in);
    *a = (answer){{whole.data + FRAME_HEADER, whole.length - FRAME_HEADER}, false};
    o.cc = answer_i4(a);
    o.rc = answer_i4(a);
    return a->bad || o.cc < MQCC_OK || o.cc > MQCC_FAILED ? broken(c) : o;
}

view answer_bytes(answer *a, size_t length) {
    if (length > a->rest.length) {
        a->bad = true;
        return (view){0};
    }
    view taken = {a->rest.data, length};
    a->rest = (view){a->rest.data + length, a->rest.length - length};
    return taken;
}

MQLONG answer_i4(answer *a) {
    MQLONG value = 0;
    view taken = answer_bytes(a, sizeof value);
    if (taken.data) memcpy(&value, taken.data, sizeof value);
    return value;
}

view answer_blob(answer *a) {
    MQLONG length = answer_i4(a);
    if (length >= 0) return answer_bytes(a, (size_t)length);
    a->bad = true;
    return (view){0};
}

void answer_field(answer *a, void *field, size_t size) { field_set(field, size, answer_blob(a)); }

outcome answer_end(connection *c, const answer *a, outcome o) { return a->bad ? broken(c) : o; }
