/* What is scored beside what: the trained surrogate, and two forecasts that say what its errors are worth. */
#ifndef UPS_TRAIN_EVALUATION_FORECAST_H
#define UPS_TRAIN_EVALUATION_FORECAST_H

enum { UPS_FORECAST_MODEL, UPS_FORECAST_PERSISTENCE, UPS_FORECAST_RECONSTRUCTION, UPS_FORECASTS };
extern const char *const ups_forecast_names[UPS_FORECASTS]; /* "model", "persistence", "reconstruction" */

#endif
