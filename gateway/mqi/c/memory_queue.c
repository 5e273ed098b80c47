/* Queues of the in-memory queue manager: a doubly linked list for each priority, found by name. */
#include <ctype.h>
#include <stdlib.h>
#include <time.h>

#include "memory.h"

enum { BUCKETS = 1024, DEFAULT_DEPTH = 999999999, DEFAULT_LENGTH = 104857600 };

static queue *buckets[BUCKETS];
static uint64_t arrivals;

int64_t milliseconds(void) {
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (int64_t)now.tv_sec * 1000 + now.tv_nsec / 1000000;
}

static queue **bucket_of(const char name[48]) {
    uint32_t hash = 2166136261u;
    for (int i = 0; i < 48; i++) hash = (hash ^ (unsigned char)name[i]) * 16777619u;
    return &buckets[hash % BUCKETS];
}

queue *queue_find(const char name[48]) {
    for (queue *q = *bucket_of(name); q; q = q->next)
        if (!memcmp(q->name, name, 48)) return q;
    return NULL;
}

/* ---- which queues there are: MQGATE_MQI_QUEUES names them, separated by commas; without it every valid name is one ------------ */

static bool is_valid_name(const char name[48]) {
    size_t length = field_length(name, 48);
    for (size_t i = 0; i < length; i++)
        if (!isalnum((unsigned char)name[i]) && !strchr("./_%", name[i])) return false;
    return length > 0;
}

static bool is_listed(const char name[48]) {
    const char *list = getenv("MQGATE_MQI_QUEUES");
    size_t length = field_length(name, 48);
    if (!list) return true;
    while (*list) {
        size_t entry = strcspn(list, ",");
        if (entry == length && !memcmp(list, name, length)) return true;
        list += entry + (list[entry] == ',');
    }
    return false;
}

outcome queue_make(const char name[48], MQLONG definition_type, queue **out) {
    queue *q = calloc(1, sizeof *q), **bucket = bucket_of(name);
    if (!q) return failed(RC_STORAGE);
    memcpy(q->name, name, 48);
    memset(q->backout_queue, ' ', sizeof q->backout_queue);
    memset(q->description, ' ', sizeof q->description);
    q->definition_type = definition_type;
    q->max_depth = DEFAULT_DEPTH;
    q->max_length = DEFAULT_LENGTH;
    pthread_condattr_t monotonic;
    pthread_condattr_init(&monotonic);
    pthread_condattr_setclock(&monotonic, CLOCK_MONOTONIC);
    pthread_cond_init(&q->arrived, &monotonic);
    pthread_condattr_destroy(&monotonic);
    q->next = *bucket;
    *bucket = q;
    *out = q;
    return done;
}

outcome queue_open(const char name[48], queue **out) {
    *out = queue_find(name);
    if (*out) return done;
    if (!is_valid_name(name) || !is_listed(name)) return failed(RC_UNKNOWN_OBJECT);
    return queue_make(name, MQQDT_PREDEFINED, out);
}

void message_free(message *m) {
    buffer_free(&m->properties);
    free(m);
}

void queue_clear(queue *q) {
    for (int p = 0; p < PRIORITIES; p++)
        while (q->head[p]) {
            message *m = q->head[p];
            queue_unlink(q, m);
            message_free(m);
        }
}

void queue_delete(queue *q) {
    queue_clear(q);
    for (queue **link = bucket_of(q->name); *link; link = &(*link)->next)
        if (*link == q) {
            *link = q->next;
            break;
        }
    pthread_cond_destroy(&q->arrived);
    free(q);
}

/* ---- order ------------------------------------------------------------------------------------------------------------------ */

static int lane(const message *m) {
    MQLONG priority = m->md.Priority;
    return priority < 0 ? 0 : priority >= PRIORITIES ? PRIORITIES - 1 : (int)priority;
}

static void link_before(queue *q, int p, message *m, message *next) {
    m->next = next;
    m->previous = next ? next->previous : q->tail[p];
    *(m->previous ? &m->previous->next : &q->head[p]) = m;
    *(next ? &next->previous : &q->tail[p]) = m;
    q->depth++;
    if (q->waiters) pthread_cond_broadcast(&q->arrived);
}

void queue_append(queue *q, message *m) {
    m->sequence = ++arrivals;
    link_before(q, lane(m), m, NULL);
}

void queue_restore(queue *q, message *m) {
    int p = lane(m);
    message *next = q->head[p];
    while (next && next->sequence < m->sequence) next = next->next;
    link_before(q, p, m, next);
}

void queue_unlink(queue *q, message *m) {
    int p = lane(m);
    *(m->previous ? &m->previous->next : &q->head[p]) = m->next;
    *(m->next ? &m->next->previous : &q->tail[p]) = m->previous;
    q->depth--;
    q->removals++;
}

/* ---- finding ---------------------------------------------------------------------------------------------------------------- */

static const MQBYTE none[24];

static bool wanted(const message *m, const get_call *call) {
    const MQMD *md = &call->md;
    if ((call->match & MQMO_MATCH_MSG_TOKEN) && memcmp(call->token, &m->sequence, sizeof m->sequence)) return false;
    if ((call->match & MQMO_MATCH_MSG_ID) && memcmp(md->MsgId, none, 24) && memcmp(md->MsgId, m->md.MsgId, 24)) return false;
    if ((call->match & MQMO_MATCH_CORREL_ID) && memcmp(md->CorrelId, none, 24) && memcmp(md->CorrelId, m->md.CorrelId, 24)) return false;
    if (call->md_version < 2) return true;
    if ((call->match & MQMO_MATCH_GROUP_ID) && memcmp(md->GroupId, m->md.GroupId, 24)) return false;
    if ((call->match & MQMO_MATCH_MSG_SEQ_NUMBER) && md->MsgSeqNumber != m->md.MsgSeqNumber) return false;
    return !(call->match & MQMO_MATCH_OFFSET) || md->Offset == m->md.Offset;
}

static message *first_below(const queue *q, int p) {
    while (p >= 0 && !q->head[p]) p--;
    return p >= 0 ? q->head[p] : NULL;
}

static message *after(const queue *q, const message *m) { return m->next ? m->next : first_below(q, lane(m) - 1); }

/* The first message from `from` on (NULL: from the start) that the call asks for; expired ones found on the way go. */
message *queue_match(queue *q, message *from, const get_call *call) {
    int64_t now = 0;
    message *m = from ? from : first_below(q, PRIORITIES - 1), *next;
    for (; m; m = next) {
        next = after(q, m);
        if (m->deadline && m->deadline <= (now ? now : (now = milliseconds()))) {
            queue_unlink(q, m);
            message_free(m);
        } else if (wanted(m, call)) {
            return m;
        }
    }
    return NULL;
}

/* What comes after a place in the queue's order, whether or not the message that was there still is. */
message *queue_next(queue *q, MQLONG priority, uint64_t sequence) {
    int p = priority >= PRIORITIES ? PRIORITIES - 1 : priority < 0 ? 0 : (int)priority;
    message *m = q->head[p];
    while (m && m->sequence <= sequence) m = m->next;
    return m ? m : first_below(q, p - 1);
}
