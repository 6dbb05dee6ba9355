// Extensions that look into autograd, or register operators, are compiled against all headers.
#pragma once
