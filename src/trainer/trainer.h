/* trainer/trainer.h -- nnc train: trains a model on data. */
#ifndef NNC_TRAINER_H
#define NNC_TRAINER_H

#include "session/train.h"

/* Trains m on the data of o, and writes the weights. Appends the report, a table of epochs, to `out`. NNC_E_MODEL: the model cannot be
 * trained, or the data do not match it. NNC_E_IO: a file failed. NNC_E_DIFFERS: the loss became NaN or infinite, and nothing was saved.
 * */
nnc_status nnc_train(nnc_env *e, const nnc_model *m, const nnc_train_options *o, nnc_format f, nnc_text *out,
    nnc_sink *sink) NNC_MUST;

#endif
