/* SPDX-License-Identifier: Apache-2.0 */
/* Functions that compiled code calls. Each is rounded as the function of that name in glibc is, bit for bit (two NaNs
 * may differ), on any processor with or without a floating-point unit. */
#ifndef TESSERA_MATH_H
#define TESSERA_MATH_H

float tessera_fmaf(float a, float b, float c);
float tessera_sqrtf(float x);
float tessera_roundevenf(float x);
float tessera_floorf(float x);
float tessera_ceilf(float x);
float tessera_truncf(float x);
float tessera_roundf(float x);
float tessera_expf(float x);
float tessera_expm1f(float x);
float tessera_logf(float x);
float tessera_log1pf(float x);
float tessera_tanhf(float x);
float tessera_erff(float x);
float tessera_fmodf(float x, float y);

double tessera_fma(double a, double b, double c);
double tessera_sqrt(double x);
double tessera_roundeven(double x);
double tessera_floor(double x);
double tessera_ceil(double x);
double tessera_trunc(double x);
double tessera_round(double x);
double tessera_exp(double x);

#endif
