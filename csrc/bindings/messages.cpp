// Point-to-point messages for Python (pycollectives/point_to_point.py), which has checked dtypes and layouts.
#include "shm/messages.hpp"

#include <pybind11/numpy.h>
#include <pybind11/stl.h>

#include <deque>
#include <memory>
#include <utility>

#include "bindings/bindings.hpp"
#include "bindings/gil.hpp"
#include "bindings/handle.hpp"

namespace py = pybind11;

namespace pc {
namespace {

// With the arrays of asynchronous requests, which must live until these are done, whoever else forgets them.
struct Mailbox : Messages {
  using Messages::Messages;
  ~Mailbox() {
    const ReleasedGil release;
    close();
  }

  void hold(const std::shared_ptr<Request>& request, py::object arrays) {
    if (held.size() >= swept) {
      std::erase_if(held, [](const auto& each) { return each.first->done.load(std::memory_order_acquire); });
      swept = 2 * held.size() + 16;
    }
    held.emplace_back(request, std::move(arrays));
  }

  std::deque<std::pair<std::shared_ptr<Request>, py::object>> held;
  size_t swept = 16;
};

// What a receive has brought, as a buffer.
struct Received {
  MessagePtr message;
};

int32_t checked(int64_t value, int64_t least, int64_t end, const char* what, const char* why) {
  if (value >= least && value < end) return static_cast<int32_t>(value);
  throw Error(ErrorKind::invalid_argument, std::string(what) + " " + std::to_string(value) +
                                               " is not in 0.." + std::to_string(end - 1) + why);
}

int32_t checked_rank(int64_t rank, int64_t least, int size, const char* what) {
  return checked(rank, least, size, what, ", the ranks of this communicator");
}

int32_t checked_tag(int64_t tag, int64_t least) { return checked(tag, least, int64_t{1} << 31, "tag", ""); }

void fill(Request& request, const py::array& array, const Element& element) {
  if (!(array.flags() & py::array::c_style))
    throw Error(ErrorKind::invalid_argument, "the array is not contiguous");
  request.data = static_cast<std::byte*>(const_cast<void*>(array.data()));
  request.bytes = static_cast<uint64_t>(array.nbytes());
  request.count = static_cast<uint64_t>(array.size());
  request.element = &element;
}

void fill_send(Request& request, int size, const py::array& x, const Element& element, int64_t dest,
               int64_t tag, double timeout) {
  fill(request, x, element);
  if (static_cast<size_t>(x.ndim()) > kMaxAxes) throw Error(ErrorKind::unsupported, "more than 64 axes");
  request.sends = true;
  request.peer = checked_rank(dest, 0, size, "dest");
  request.tag = checked_tag(tag, 0);
  request.axes = static_cast<uint8_t>(x.ndim());
  std::copy_n(x.shape(), x.ndim(), request.shape);
  request.timeout_ns = nanoseconds(timeout);
  request.interruptible = true;
}

void fill_receive(Request& request, int size, const py::object& out, const Element* element, int64_t source,
                  int64_t tag, double timeout) {
  if (element) fill(request, py::reinterpret_borrow<py::array>(out), *element);
  request.peer = checked_rank(source, kAny, size, "source");
  request.tag = checked_tag(tag, kAny);
  request.timeout_ns = nanoseconds(timeout);
  request.interruptible = true;
}

// (source, tag, None), or (source, tag, (dtype, its text, shape, Received)) for a message in memory of its own
py::tuple outcome(Request& request) {
  if (!request.message) return py::make_tuple(request.source, request.received_tag, py::none());
  Message& message = *request.message;
  py::tuple shape(message.envelope.axes);
  for (size_t axis = 0; axis < shape.size(); ++axis) shape[axis] = message.shape()[axis];
  py::str text(message.text(), message.envelope.text);
  return py::make_tuple(request.source, request.received_tag,
                        py::make_tuple(message.envelope.dtype, std::move(text), std::move(shape),
                                       Received{std::move(request.message)}));
}

void send(Mailbox& self, const py::array& x, const Element& element, int64_t dest, int64_t tag,
          double timeout) {
  Request request;
  fill_send(request, self.size(), x, element, dest, tag, timeout);
  const ReleasedGil release;
  self.send(request);
}

py::tuple recv(Mailbox& self, const py::object& out, const Element* element, int64_t source, int64_t tag,
               double timeout) {
  Request request;
  fill_receive(request, self.size(), out, element, source, tag, timeout);
  {
    const ReleasedGil release;
    self.receive(request);
  }
  return outcome(request);
}

py::tuple sendrecv(Mailbox& self, const py::array& x, const Element& sent, int64_t dest, int64_t tag,
                   const py::object& out, const Element* taken, int64_t source, int64_t recv_tag,
                   double timeout) {
  Request outgoing, incoming;
  fill_send(outgoing, self.size(), x, sent, dest, tag, timeout);
  fill_receive(incoming, self.size(), out, taken, source, recv_tag, timeout);
  {
    const ReleasedGil release;
    self.exchange(outgoing, incoming);
  }
  return outcome(incoming);
}

std::shared_ptr<Request> submit(Mailbox& self, const std::shared_ptr<Request>& request,
                                const py::object& array, const py::object& element) {
  {
    const ReleasedGil release;
    self.submit(request);
  }
  if (!request->done.load(std::memory_order_acquire)) self.hold(request, py::make_tuple(array, element));
  return request;
}

std::shared_ptr<Request> submit_send(Mailbox& self, const py::array& x, const py::object& element,
                                     int64_t dest, int64_t tag, double timeout) {
  auto request = std::make_shared<Request>();
  fill_send(*request, self.size(), x, element.cast<const Element&>(), dest, tag, timeout);
  return submit(self, request, x, element);
}

std::shared_ptr<Request> submit_recv(Mailbox& self, const py::object& out, const py::object& element,
                                     int64_t source, int64_t tag, double timeout) {
  auto request = std::make_shared<Request>();
  fill_receive(*request, self.size(), out, element.cast<const Element*>(), source, tag, timeout);
  return submit(self, request, out, element);
}

py::tuple submit_sendrecv(Mailbox& self, const py::array& x, const py::object& sent, int64_t dest,
                          int64_t tag, const py::object& out, const py::object& taken, int64_t source,
                          int64_t recv_tag, double timeout) {
  const auto outgoing = std::make_shared<Request>(), incoming = std::make_shared<Request>();
  fill_send(*outgoing, self.size(), x, sent.cast<const Element&>(), dest, tag, timeout);
  fill_receive(*incoming, self.size(), out, taken.cast<const Element*>(), source, recv_tag, timeout);
  submit(self, outgoing, x, sent);
  submit(self, incoming, out, taken);
  return py::make_tuple(outgoing, incoming);
}

}  // namespace

void bind_messages(py::module_& module) {
  module.attr("LONGEST_DTYPE") = kMaxText;
  py::class_<Element>(module, "Element",
                      "A dtype as messages name it: its index in DTYPES, or 255 and a text.")
      .def(py::init([](uint8_t dtype, std::string text) {
        return std::make_unique<Element>(Element{dtype, std::move(text)});
      }));
  py::class_<Request, std::shared_ptr<Request>>(module, "Request",
                                                "A message that is sent or received asynchronously.");
  py::class_<Received>(module, "Received", py::buffer_protocol(),
                       "A message in memory of its own; a buffer of bytes.")
      .def_buffer([](Received& self) {
        return py::buffer_info(reinterpret_cast<unsigned char*>(self.message->data()),
                               static_cast<py::ssize_t>(self.message->envelope.bytes));
      });
  py::class_<Mailbox>(module, "Messages", "Point-to-point messages over shared memory.")
      .def(py::init([](Handle& core, uint32_t spins, uint32_t yields, uint32_t nap_us) {
             return std::make_unique<Mailbox>(core.group(),
                                              Patience{spins, yields, register_membarrier(), nap_us});
           }),
           py::keep_alive<1, 2>())
      .def_property_readonly("eager_bytes", &Mailbox::eager_bytes)
      .def("send", &send)
      .def("recv", &recv)
      .def("sendrecv", &sendrecv)
      .def("submit_send", &submit_send)
      .def("submit_recv", &submit_recv)
      .def("submit_sendrecv", &submit_sendrecv)
      .def("test",
           [](Mailbox& self, Request& request) {
             const ReleasedGil release;
             return self.test(request);
           })
      .def("wait",
           [](Mailbox& self, const std::shared_ptr<Request>& request, double timeout) {
             {
               const ReleasedGil release;
               self.wait(*request, nanoseconds(timeout));
             }
             return outcome(*request);
           })
      .def("close", &Mailbox::close, py::call_guard<ReleasedGil>())
      .def("forget", &Mailbox::forget);
}

}  // namespace pc
