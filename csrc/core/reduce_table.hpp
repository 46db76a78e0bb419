// The table of the kernels of one instruction set. Included once for each by reduce_kernels.hpp.

namespace pc::PC_SIMD {
namespace {

template <class T, ReduceOp Op>
struct OpFor;
#define PC_OP(name, ...)            \
  template <class T>                \
  struct OpFor<T, ReduceOp::name> { \
    using type = __VA_ARGS__;       \
  };
PC_OP(sum, Sum<T>)
PC_OP(prod, Prod<T>)
PC_OP(min, Min<T>)
PC_OP(max, Max<T>)
PC_OP(band, Bitwise<T, And>)
PC_OP(bor, Bitwise<T, Or>)
PC_OP(bxor, Bitwise<T, Xor>)
PC_OP(land, Logical<T, And>)
PC_OP(lor, Logical<T, Or>)
PC_OP(lxor, Logical<T, Xor>)
#undef PC_OP

template <class C, ReduceOp Op>
constexpr Kernel kernel_of = kernel<C, typename OpFor<typename C::Acc, Op>::type>;

template <ReduceOp Op>
constexpr Kernel bool_kernel() {
  using enum ReduceOp;
  if constexpr (Op == bxor || Op == lxor)
    return kernel_of<Bool, bxor>;
  else if constexpr (Op == prod || Op == min || Op == band || Op == land)
    return kernel_of<Bool, band>;
  else
    return kernel_of<Bool, bor>;
}

template <class T, ReduceOp Op>
constexpr Kernel integer_kernel() {
  using enum ReduceOp;
  if constexpr (Op == sum)
    return integer_sum<T>;
  else if constexpr (Op == min || Op == max)
    return kernel_of<Native<T>, Op>;
  else
    return kernel_of<Native<Bits<T>>, Op>;
}

template <class T, ReduceOp Op>
constexpr Kernel complex_kernel() {
  if constexpr (Op == ReduceOp::sum)
    return kernel<Native<T>, Sum<T>, 2>;
  else
    return kernel<Native<T>, ComplexProd<T>, 2>;
}

template <class C, ReduceOp Op>
constexpr Kernel half_kernel() {
  if constexpr (Op == ReduceOp::sum)
    return kernel<C, NarrowSum>;
  else
    return kernel_of<C, Op>;
}

template <DType Type, ReduceOp Op>
constexpr Kernel choose() {
  using enum DType;
  if constexpr (!supports(Type, Op))
    return nullptr;
  else if constexpr (Type == bool_)
    return bool_kernel<Op>();
  else if constexpr (Type == int8)
    return integer_kernel<int8_t, Op>();
  else if constexpr (Type == int16)
    return integer_kernel<int16_t, Op>();
  else if constexpr (Type == int32)
    return integer_kernel<int32_t, Op>();
  else if constexpr (Type == int64)
    return integer_kernel<int64_t, Op>();
  else if constexpr (Type == uint8)
    return integer_kernel<uint8_t, Op>();
  else if constexpr (Type == uint16)
    return integer_kernel<uint16_t, Op>();
  else if constexpr (Type == uint32)
    return integer_kernel<uint32_t, Op>();
  else if constexpr (Type == uint64)
    return integer_kernel<uint64_t, Op>();
  else if constexpr (Type == float16)
#ifdef PC_SIMD_F16C_ELSEWHERE
    return nullptr;
#else
    return half_kernel<Float16, Op>();
#endif
  else if constexpr (Type == bfloat16)
    return half_kernel<BFloat16, Op>();
  else if constexpr (Type == float32)
    return kernel_of<Native<float>, Op>;
  else if constexpr (Type == float64)
    return kernel_of<Native<double>, Op>;
  else if constexpr (Type == float8_e4m3fn)
    return kernel_of<Float8E4M3FN, Op>;
  else if constexpr (Type == float8_e5m2)
    return kernel_of<Float8E5M2, Op>;
  else if constexpr (Type == complex64)
    return complex_kernel<float, Op>();
  else
    return complex_kernel<double, Op>();
}

template <int... Index>
constexpr detail::KernelTable make_table(std::integer_sequence<int, Index...>) {
  detail::KernelTable table{};
  ((table.at[Index / reduce_op_count][Index % reduce_op_count] =
        choose<DType{Index / reduce_op_count}, ReduceOp{Index % reduce_op_count}>()),
   ...);
  return table;
}

constexpr detail::KernelTable table =
    make_table(std::make_integer_sequence<int, dtype_count * reduce_op_count>{});

}  // namespace

const detail::KernelTable& kernels() { return table; }

}  // namespace pc::PC_SIMD
