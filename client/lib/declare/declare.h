/* Declaration of tensors, for the other files of the library. */
#ifndef GRADPOOL_CLIENT_LIB_DECLARE_DECLARE_H
#define GRADPOOL_CLIENT_LIB_DECLARE_DECLARE_H

#include "client/lib/job/tensor.h"

/* Declares a tensor with a reserved name. All ranks call this function. */
int declare_internal(struct gp_job *job, const char *name, enum gp_dtype dtype, uint64_t elements,
                     uint64_t timeout_ns, struct gp_tensor **ret_tensor);
/* Declares a tensor of the library. The ranks of the tensor call this function. */
int declare_hidden(struct gp_job *job, const gp_tensor_spec *spec, uint64_t timeout_ns,
                   struct gp_tensor **ret_tensor);
/* Declares tensors of the library and of the caller in one request, so that a late worker enters
 * all of them at the same time. `specs` is checked. `ret_tensors`: first the tensors of `hidden`.
 * Errors of gp_tensors_declare(). */
int declare_together(struct gp_job *job, const gp_tensor_spec *hidden, size_t hidden_count,
                     const gp_tensor_spec *specs, size_t count, struct gp_tensor **ret_tensors);
/* Declares the hidden tensor of a job with backup workers. The announcements of this tensor close
 * the job's rounds (W22). */
int declare_leader(struct gp_job *job, uint64_t timeout_ns, struct gp_tensor **ret_tensor);

/* Sets the error of a request without an answer before its deadline: -ETIMEDOUT, with the
 * coordinator's reason if the job waits for lanes. `what`: subject of the text. */
int declare_unanswered(struct gp_job *job, const char *what, uint64_t timeout_ns);

#endif
