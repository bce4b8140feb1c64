#include "CGD.h"
