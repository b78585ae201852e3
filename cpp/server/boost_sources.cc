// SPDX-License-Identifier: Apache-2.0
//
// The code of Boost.Asio and Boost.JSON that is no template, compiled once (see cmake/boost.cmake).
#include <boost/asio/impl/src.hpp>
#include <boost/json/src.hpp>
