/* What the parts of the library share: an outcome, borrowed and owned bytes, a connection, and the calls with every pointer and
   offset already resolved. The entry points (calls_*.c) check and resolve; what talks to the queue manager (socket_*.c) sees only
   this. */
#ifndef MQGATE_MQM_H
#define MQGATE_MQM_H

#include <pthread.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include "cmqc.h"
#include "reasons.h"

#define EXPORT __attribute__((visibility("default")))
#define PRINTS(f, a) __attribute__((format(printf, f, a)))

/* ---- outcomes ---------------------------------------------------------------------------------------------------------- */

typedef struct outcome {
    MQLONG cc, rc;
} outcome;

static const outcome done = {MQCC_OK, 0};
static inline outcome failed(MQLONG rc) { return (outcome){MQCC_FAILED, rc}; }
static inline outcome warning(MQLONG rc) { return (outcome){MQCC_WARNING, rc}; }
static inline bool is_failed(outcome o) { return o.cc == MQCC_FAILED; }
void report(outcome o, PMQLONG cc, PMQLONG rc);

/* ---- bytes: a view is borrowed, a buffer is owned -------------------------------------------------------------------------- */

typedef struct view {
    const unsigned char *data;
    size_t length;
} view;

typedef struct buffer {
    unsigned char *data;
    size_t length, capacity;
} buffer;

bool buffer_reserve(buffer *b, size_t more);
bool buffer_add(buffer *b, const void *data, size_t length);
bool buffer_text(buffer *b, const char *text);
bool buffer_i4(buffer *b, MQLONG value);
bool buffer_print(buffer *b, const char *format, ...) PRINTS(2, 3);
void buffer_free(buffer *b);
static inline view buffer_view(const buffer *b) { return (view){b->data, b->length}; }

/* ---- text.c: fields and variable-length strings ---------------------------------------------------------------------------- */

size_t field_length(const void *field, size_t size);              /* up to the first NUL, without the blanks at the end */
view field_view(const void *field, size_t size);
void field_copy(void *to, const void *from, size_t size);         /* ends at a NUL; the rest becomes blanks */
void field_set(void *to, size_t size, view text);
bool field_is(const void *field, size_t size, const char *text);
outcome charv_in(const MQCHARV *v, const void *base, MQLONG bad, view *out);
outcome charv_out(MQCHARV *v, void *base, view text, MQLONG bad, MQLONG too_short);
view pointed(const void *base, const void *pointer, MQLONG offset, MQLONG length);

/* ---- structures.c: the caller's structures, read and written only as far as their Version says ----------------------------- */

outcome check_structure(const void *structure, const char *id, MQLONG newest, MQLONG bad);
outcome md_in(const MQMD *from, MQMD *to);
void md_out(const MQMD *from, MQMD *to);

/* ---- properties ---------------------------------------------------------------------------------------------------------- */

typedef struct property {
    char *name;                       /* NUL-terminated; without the folder `usr.`, which is implied */
    MQLONG type, length;
    unsigned char *value;
    MQLONG support, context, copy;
} property;

typedef struct property_list {
    property *items;
    size_t count, capacity;
    size_t cursor;                    /* of MQINQMP: index + 1 of the property last returned; 0 before the first */
    MQLONG *places;                   /* by the hash of a name, in `place_count` places: index + 1, or 0; none: nothing was looked for
                                         since an index changed, or not enough */
    size_t place_count, looked;       /* how many names have been compared since */
} property_list;

void properties_clear(property_list *list);
size_t properties_find(property_list *list, view name);  /* the index of the first of this name; `count`: there is none */
void properties_moved(property_list *list);              /* indexes have changed */
outcome properties_set(property_list *list, const property *like, view name, view value);
outcome properties_put(property_list *list, size_t index, const property *like, view name, view value);
void properties_remove(property_list *list, size_t index);
enum { MQCOPY_EVERY = -1 };            /* whatever the copy options say */
bool properties_pack(property_list *original, property_list *changes, MQLONG copied, buffer *out);
bool properties_unpack(property_list *list, view packed);
view property_name(view name);        /* without `usr.` */

outcome handle_enter(MQHMSG handle, property_list **list);  /* locks all message handles; handle_leave afterwards */
outcome handles_enter(MQHMSG first, property_list **one, MQHMSG second, property_list **other);  /* the same; MQHM_NONE leaves its list */
void handle_leave(void);
void handles_drop(MQHCONN hconn);     /* those of a connection that ends */
void handles_reset_lock(void);        /* in a forked child */

/* values.c */
MQLONG type_length(MQLONG type);      /* -1: variable, -2: no such type */
outcome value_convert(const property *from, MQLONG type, buffer *out);
outcome text_recode(MQLONG from, view text, MQLONG to, MQLONG encoding, buffer *out);
                                      /* properties are kept in UTF-8 (1208); the encoding says the order of UTF-16 (1200) */
void value_swap(MQLONG type, MQLONG encoding, unsigned char *value, size_t length);  /* native to the encoding, or back */

/* rfh2.c */
outcome rfh2_parse(view data, MQLONG encoding, property_list *list, size_t *header_length, MQMD *follows, buffer *kept);
outcome rfh2_build(const property_list *list, const MQMD *follows, buffer *out);

/* convert.c */
outcome convert_text(MQLONG from, view text, MQLONG to, buffer *out);

/* ---- socket_calls.c: the calls that the queue manager answers ------------------------------------------------------------ */

typedef struct connect_call {
    view qmgr, user, password, application, channel, address;
    MQLONG options;
    char qmgr_name[MQ_Q_MGR_NAME_LENGTH];
    MQBYTE connection_id[24];
} connect_call;

typedef struct open_call {
    MQLONG object_type, options;
    char name[48], qmgr[48], dynamic[48], alternate[12];
    view object_string, selection;
    MQHOBJ hobj;                                       /* out, and all that follows */
    char resolved_q[48], resolved_qmgr[48];
    MQLONG resolved_type;
    buffer resolved_string;
} open_call;

typedef struct put_call {
    MQHOBJ hobj;
    const open_call *target;                           /* MQPUT1, else NULL */
    MQMD md;                                           /* version 2; in and out */
    MQLONG options, pub_level;
    MQHOBJ context;
    view data;
    buffer properties;                                 /* packed; empty: none */
    char resolved_q[48], resolved_qmgr[48];
} put_call;

typedef struct get_call {
    MQHOBJ hobj;
    MQMD md;                                           /* in and out */
    MQLONG md_version, options, wait, match;
    bool has_handle;
    void *room;
    MQLONG size;
    MQLONG data_length, returned;                      /* out, and all that follows */
    char resolved_q[48], group_status, segment_status, segmentation;
    MQBYTE token[16];
    bool in_handle;
    buffer properties;
} get_call;

typedef struct inquire_call {
    MQHOBJ hobj;
    const MQLONG *selectors;
    MQLONG selector_count, int_count, char_length;
    MQLONG *ints;
    char *chars;
} inquire_call;

typedef struct subscribe_call {
    MQLONG options, expiry, level, priority;           /* options in and out: MQSO_RESUME returns those of the subscription */
    char name[48], alternate[12];
    view object_string, sub_name, user_data, selection; /* user_data and selection out: in `returned` */
    MQBYTE correl_id[24], accounting_token[32];
    char identity[32];
    MQHOBJ hobj, hsub;                                 /* hobj in and out */
    buffer resolved_string, returned;
} subscribe_call;

typedef struct status_call {
    MQLONG type, cc, rc, successes, warnings, failures, object_type;
    char name[48], qmgr[48], resolved_name[48], resolved_qmgr[48];
} status_call;

typedef struct connection connection;

outcome qm_connect(connection *c, connect_call *call);
outcome qm_disconnect(connection *c);
void qm_abandon(connection *c);                        /* in a forked child: close it without telling the queue manager */
outcome qm_open(connection *c, open_call *call);
outcome qm_close(connection *c, MQHOBJ hobj, MQLONG options);
outcome qm_put(connection *c, put_call *call);
outcome qm_get(connection *c, get_call *call);
outcome qm_begin(connection *c);
outcome qm_commit(connection *c);
outcome qm_back_out(connection *c);
outcome qm_inquire(connection *c, inquire_call *call);
outcome qm_set(connection *c, inquire_call *call);
outcome qm_subscribe(connection *c, subscribe_call *call);
outcome qm_subscription_request(connection *c, MQHOBJ hsub, MQLONG action, MQLONG *publications);
outcome qm_status(connection *c, status_call *call);

/* ---- connections.c ---------------------------------------------------------------------------------------------------------- */

typedef struct consumer consumer;

struct connection {
    _Atomic MQHCONN handle;                            /* 0: the slot is free */
    MQLONG generation, share;
    pthread_t owner;                                   /* with MQCNO_HANDLE_SHARE_NONE only this thread may call */
    pthread_mutex_t lock;
    void *session;                                     /* of socket_calls.c */
    bool broken;                                       /* every call answers 2009 until MQDISC */
    char qmgr[48], application[28], asked[48];
    MQBYTE id[24];
    buffer open_handles;                               /* open_handles.c */
    consumer *consumers;                               /* callback.c */
    int consuming;                                     /* 0 stopped, 1 started, 2 suspended */
    bool stopping, resting;                            /* resting: suspended, and no callback or MQGET is under way */
    pthread_cond_t stopped;                            /* consuming or resting has changed */
    pthread_t consumer_thread;
    void *connection_area;
};

outcome enter(MQHCONN hconn, connection **c);          /* the connection, locked by this thread */
outcome enter_any(MQHCONN hconn, connection **c);      /* the same, also while messages are being consumed */
void leave(connection *c);
void consumers_end(connection *c);                     /* callback.c; called with the lock held */
void consumer_close(connection *c, MQHOBJ hobj);
bool on_consumer_thread(const connection *c);
void open_handles_add(connection *c, MQHOBJ hobj, MQLONG options);
void open_handles_drop(connection *c, MQHOBJ hobj);
outcome open_handles_check(const connection *c, MQHOBJ hobj, bool browses);  /* whether messages can be got, or browsed */
void unique_id(connection *c, MQBYTE id[24]);          /* `AMQ `, the queue manager's name, eight unique bytes */

#endif
