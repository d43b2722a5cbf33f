/* tests/frontend/schema.h -- a model file against docs/schema/model.schema.json, and what docs/ has of the layer table. */
#ifndef NNC_TESTS_FRONTEND_SCHEMA_H
#define NNC_TESTS_FRONTEND_SCHEMA_H

#include "frontend/frontend.h"

bool schema_accepts(const char *json);
/* make_docs.c: JSON Schema (draft-07) of model files, which docs/schema/model.schema.json contains; the tables of docs/model.md. */
void model_schema(nnc_text *t);
void layers_markdown(nnc_text *t);

#endif
