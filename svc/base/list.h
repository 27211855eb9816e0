/* Intrusive doubly linked list. Nothing is allocated, and all operations are O(1). A node in no
 * list points to itself, so list_remove() may be called twice. */
#ifndef GRADPOOL_BASE_LIST_H
#define GRADPOOL_BASE_LIST_H

#include <stdbool.h>
#include <stddef.h>

struct list {
    struct list *next, *previous;
};

static inline void list_init(struct list *l) { l->next = l->previous = l; }
static inline bool list_is_empty(const struct list *l) { return l->next == l; }
static inline void list_insert_before(struct list *at, struct list *node)
{
    node->previous = at->previous;
    node->next = at;
    at->previous->next = node;
    at->previous = node;
}
static inline void list_append(struct list *head, struct list *node)
{
    list_insert_before(head, node);
}
static inline void list_prepend(struct list *head, struct list *node)
{
    list_insert_before(head->next, node);
}
static inline void list_remove(struct list *node)
{
    node->previous->next = node->next;
    node->next->previous = node->previous;
    list_init(node);
}
static inline struct list *list_first(struct list *head)
{
    return list_is_empty(head) ? NULL : head->next;
}

#define container_of(pointer, type, member) \
    ((type *)((char *)(pointer) + -(ptrdiff_t)offsetof(type, member)))
#define list_entry(node, type, member) container_of(node, type, member)

#define list_for_each(node, head) \
    for (struct list *node = (head)->next; node != (head); node = node->next)
/* Loops over the nodes. The loop body may remove the current node. */
#define list_for_each_safe(node, head)                                                \
    for (struct list *node = (head)->next, *node##_next = node->next; node != (head); \
         node = node##_next, node##_next = node->next)
/* Loops over the structs in a list, for example list_for_each_entry (struct job, job, &s->jobs,
 * link). */
#define list_for_each_entry(type, name, head, member)                                  \
    for (type *name = list_entry((head)->next, type, member); &name->member != (head); \
         name = list_entry(name->member.next, type, member))
#define list_for_each_safe_entry(type, name, head, member)                \
    for (type *name = list_entry((head)->next, type, member),             \
              *name##_next = list_entry(name->member.next, type, member); \
         &name->member != (head);                                         \
         name = name##_next, name##_next = list_entry(name->member.next, type, member))

#endif
