/* The in-memory queue manager: what its files share. One lock guards everything; a queue has a condition its waiters sleep on.
   Made for measuring programs and for trying them without a queue manager: nothing survives the process. */
#ifndef MQGATE_MEMORY_H
#define MQGATE_MEMORY_H

#include "mqm.h"

enum { PRIORITIES = 10 };

typedef struct message {
    struct message *next, *previous;
    MQMD md;
    uint64_t sequence;                       /* the order of arrival in the whole queue manager */
    int64_t deadline;                        /* milliseconds of the monotonic clock; 0: does not expire */
    buffer properties;                       /* packed */
    MQLONG length;
    unsigned char data[];
} message;

typedef struct queue {
    struct queue *next;                      /* of the same bucket */
    char name[48];
    message *head[PRIORITIES], *tail[PRIORITIES];
    uint64_t removals;                       /* tells a browse cursor that its pointer may be stale */
    MQLONG depth, max_depth, max_length, inputs, outputs, definition_type, backout_threshold;
    char backout_queue[48], description[64];
    bool inhibit_get, inhibit_put, exclusive, deleted;
    int waiters;
    pthread_cond_t arrived;
} queue;

typedef struct subscription {
    struct subscription *next;
    char *filter, *name;                     /* name: of a durable one, else NULL */
    queue *to;
    MQBYTE correl_id[24];
    MQHCONN owner;                           /* 0: durable and nobody has it open */
    bool managed;
} subscription;

typedef struct object {
    MQLONG type, options;                    /* type 0: a free entry; -1: a subscription */
    queue *queue;
    char *topic;
    subscription *subscription;
    message *cursor;                         /* valid while queue->removals == seen */
    MQLONG cursor_priority;
    uint64_t cursor_sequence, seen;
    bool browsed, has_context;
    MQMD context;
} object;

typedef struct work {
    bool is_put;
    queue *queue;
    message *message;
} work;

typedef struct session {
    object *objects;
    size_t object_count;
    work *works;
    size_t work_count, work_room;
    status_call status;
    bool put_lost;                           /* an asynchronous put of this unit failed: MQCMIT backs out */
    char user[12];
} session;

extern pthread_mutex_t memory_lock;
extern char memory_qmgr[48];

/* memory_queue.c */
queue *queue_find(const char name[48]);
outcome queue_open(const char name[48], queue **out);         /* makes it where the settings allow */
outcome queue_make(const char name[48], MQLONG definition_type, queue **out);
void queue_delete(queue *q);
void queue_clear(queue *q);
void queue_append(queue *q, message *m);
void queue_restore(queue *q, message *m);                     /* back to its place, after a backout */
void queue_unlink(queue *q, message *m);
message *queue_match(queue *q, message *from, const get_call *call);
message *queue_next(queue *q, MQLONG priority, uint64_t sequence);
void message_free(message *m);
int64_t milliseconds(void);

/* memory_session.c */
outcome session_object(connection *c, MQHOBJ hobj, object **out);
outcome session_note(session *s, bool is_put, queue *q, message *m);
MQHOBJ session_handle(session *s);                            /* a free entry's handle, or 0 */
void queue_release(queue *q, bool input, bool remove);        /* one user fewer; the last one takes a temporary queue along */

/* memory_message.c */
outcome memory_put(connection *c, put_call *call);
outcome memory_get(connection *c, get_call *call);

/* memory_topic.c */
outcome topic_publish(connection *c, const char *topic, put_call *call, bool in_unit);
outcome memory_subscribe(connection *c, subscribe_call *call);
outcome memory_subscription_request(connection *c, MQHOBJ hsub, MQLONG action, MQLONG *publications);
void subscription_close(object *o, MQLONG options);
outcome message_make(const put_call *call, const connection *c, message **out);
outcome message_store(connection *c, queue *q, message *m, bool in_unit);

/* memory_inquire.c */
outcome memory_inquire(connection *c, inquire_call *call);
outcome memory_set(connection *c, inquire_call *call);

#endif
