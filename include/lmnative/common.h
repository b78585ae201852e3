/* SPDX-License-Identifier: Apache-2.0
 *
 * lmnative C ABI: what all headers share. C11, also valid C++. Include lmnative.h, not this file.
 *
 * Rules that hold for every function:
 * - A fallible call returns an lmn_status and takes an optional last argument `lmn_error **err`.
 *   When the call fails and `err` is not NULL, *err is set to an error that the caller destroys; on
 *   success *err is set to NULL. On failure other outputs are untouched, unless the function says
 *   otherwise.
 * - `destroy(NULL)` is a no-op. Children keep their parents alive: any order of destruction is
 *   safe. A handle may be destroyed once, by one thread, when no other thread is in a call on it.
 * - A const handle may be used by any number of threads at once. What a non-const handle allows is
 *   said at its type.
 * - Option structs start with `uint32_t struct_size` = sizeof the struct the caller was compiled
 *   with; zero in any field means its default, so `= {.struct_size = sizeof o}` is complete. Output
 *   structs start with it as well: the caller sets it, and the library writes no further; fields
 *   that it does not know become zero. Fields are only ever appended, and every size is a multiple
 *   of 8. A larger struct from a newer caller is accepted when the tail that this library does not
 *   know is zero, else LMN_UNSUPPORTED; so are unknown flags. `reserved` fields must be 0.
 * - Structs without struct_size are elements of arrays: they never change.
 * - Text is UTF-8, given as pointer and byte count where that is natural; names and paths are
 *   NUL-terminated.
 * - Pointers returned inside structs point into the object that was asked and live as long as its
 *   handle, unless the function says otherwise.
 * - The library never prints, exits, aborts, installs signal handlers or lets a C++ exception out.
 *   A thread that pthread_cancel is asked of finishes the call it is in.
 */
#ifndef LMNATIVE_COMMON_H_
#define LMNATIVE_COMMON_H_

#include <stddef.h>
#include <stdint.h>

#if defined(_WIN32)
#define LMN_API __declspec(dllimport)
#elif defined(__GNUC__)
#define LMN_API __attribute__((visibility("default")))
#else
#define LMN_API
#endif

#ifdef __cplusplus
#define LMN_BEGIN_C extern "C" {
#define LMN_END_C }
#else
#define LMN_BEGIN_C
#define LMN_END_C
#endif

LMN_BEGIN_C

typedef int32_t lmn_status;

#define LMN_OK 0
#define LMN_INVALID_ARGUMENT 1  /* the arguments could never be valid */
#define LMN_NOT_FOUND 2         /* a file, name, key or index that does not exist */
#define LMN_IO_ERROR 3          /* the operating system refused */
#define LMN_CORRUPT 4           /* bytes contradict their format */
#define LMN_UNSUPPORTED 5       /* well formed, but not done by this version */
#define LMN_OUT_OF_MEMORY 6     /* memory or a budget was refused */
#define LMN_QUEUE_FULL 7        /* back-pressure: try again later */
#define LMN_TIMEOUT 8           /* nothing arrived in the time given */
#define LMN_CANCELLED 9         /* ended by cancel or destroy */
#define LMN_BUFFER_TOO_SMALL 10 /* the needed size was written to the count argument */
#define LMN_CLOSED 11           /* shutting down, or inherited through fork */
#define LMN_INTERNAL 12 /* a GPU that failed or cannot be used; else a bug: please report it */

/* "LMN_NOT_FOUND" and so on; "LMN_UNKNOWN" for any other number. Static storage. */
LMN_API const char *lmn_status_name(lmn_status status);

/* Why a call failed. Immutable. */
typedef struct lmn_error lmn_error;
/* The status of the call that failed; LMN_OK for NULL. */
LMN_API lmn_status lmn_error_status(const lmn_error *error);
/* The message, NUL-terminated UTF-8; lives as long as `error`. It names the input and the remedy.
 * "" for NULL. */
LMN_API const char *lmn_error_message(const lmn_error *error);
LMN_API void lmn_error_destroy(lmn_error *error);

/* Progress of a long call: `done` of `total` steps of `what` (static text such as "packing
 * weights"). Called from the calling thread. Return 0 to go on; anything else makes the call return
 * LMN_CANCELLED. It must not throw; if it does all the same, that counts as "stop". */
typedef int32_t (*lmn_progress_fn)(void *user, const char *what, uint64_t done, uint64_t total);

LMN_END_C

#endif /* LMNATIVE_COMMON_H_ */
