/* tests/frontend/schema.h -- a model file against docs/schema/model.schema.json. */
#ifndef NNC_TESTS_FRONTEND_SCHEMA_H
#define NNC_TESTS_FRONTEND_SCHEMA_H

#include "frontend/frontend.h"

bool schema_accepts(const char *json);

#endif
